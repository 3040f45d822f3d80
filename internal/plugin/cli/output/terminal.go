package output

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether what is written there is seen by a person at once.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// The colours of what is taken away and what is added.
const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// colored reports whether to write in colours: on a terminal that knows them, unless people want
// none (https://no-color.org).
func colored(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Progress tells on a terminal how far a long operation is; elsewhere it is silent.
type Progress struct {
	w     io.Writer
	shown bool
}

// NewProgress returns what shows progress on w.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, shown: IsTerminal(w)} }

// Show replaces what was shown before.
func (p *Progress) Show(format string, args ...any) {
	if p.shown {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// Done takes it away.
func (p *Progress) Done() { p.Show("") }
