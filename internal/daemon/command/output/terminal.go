package output

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// IsColored reports whether to write in color: on a terminal that supports it, unless $NO_COLOR is
// set (https://no-color.org).
func IsColored(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Progress shows the progress of a long operation on a terminal; elsewhere it writes nothing.
type Progress struct {
	w     io.Writer
	shown bool
}

// NewProgress returns a Progress that writes to w.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, shown: IsTerminal(w)} }

// Show replaces the text that was shown before.
func (p *Progress) Show(format string, args ...any) {
	if p.shown {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// Done clears the text.
func (p *Progress) Done() { p.Show("") }

// Shown returns a value of an annotation, quoted if it has characters that are not printable: anyone
// who may annotate an object chooses them.
func Shown(value string) string {
	if strings.ContainsFunc(value, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(value)
	}
	return value
}

// Harmless returns a text that others wrote, such as the note of an event, without the characters
// that could control the terminal.
func Harmless(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}
