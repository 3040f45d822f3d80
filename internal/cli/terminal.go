package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal says whether what is written there is seen by a person at once.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// The colours of what is taken away and what is added.
const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// hasColors says whether to write in colours: on a terminal that knows them, unless people want none (https://no-color.org).
func hasColors(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// progress tells on a terminal how far a long operation is; elsewhere it is silent.
type progress struct {
	w       io.Writer
	isShown bool
}

func newProgress(w io.Writer) *progress { return &progress{w: w, isShown: isTerminal(w)} }

// show replaces what was shown before.
func (p *progress) show(format string, args ...any) {
	if p.isShown {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// done takes it away.
func (p *progress) done() { p.show("") }
