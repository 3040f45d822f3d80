package story

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// Width is the maximum length of a line; only a path or a long label exceeds it.
	Width = 96
	// TextColumn is the column of the text, after the time and the actor.
	TextColumn = 24
)

// The colours, as SGR parameters.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

// colours matches what paint puts around a text.
var colours = regexp.MustCompile("\x1b\\[[0-9]*m")

// Screen prints the output of a demo. It is safe for concurrent use.
type Screen struct {
	// Start is what printed times are relative to.
	Start  time.Time
	colour bool

	mu   sync.Mutex
	w    io.Writer
	also io.Writer // or nil
}

// PlainScreen prints to w, without colours.
func PlainScreen(w io.Writer) *Screen { return &Screen{w: w, Start: time.Now()} }

// NewScreen prints to f, in colour if f is a terminal and NO_COLOR (https://no-color.org) is not set.
func NewScreen(f *os.File) *Screen {
	return &Screen{
		w: f, Start: time.Now(),
		colour: isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// AlsoTo makes the screen print to w as well, without colours. Call it before anything is printed.
func (s *Screen) AlsoTo(w io.Writer) { s.also = w }

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Heading prints the title of a part.
func (s *Screen) Heading(text string) { s.print("\n" + s.paint(bold, text) + "\n") }

// Say prints an action of an actor at a time, with details.
func (s *Screen) Say(at time.Time, who, text string, details ...string) {
	// Pad before painting: the codes of a colour have no width.
	s.print(fmt.Sprintf("%s  %s  %s\n", s.paint(dim, fmt.Sprintf("%7.3fs", at.Sub(s.Start).Seconds())),
		s.paint(cyan, fmt.Sprintf("%-12s", who)), text))
	for _, line := range details {
		s.print(strings.Repeat(" ", TextColumn) + line + "\n")
	}
}

// Result prints whether a step had the expected result.
func (s *Screen) Result(ok bool, text string) {
	sign := s.paint(green, "✓")
	if !ok {
		sign = s.paint(red, "✗")
	}
	s.print("  " + sign + " " + text + "\n")
}

// Note prints a line about the demo itself.
func (s *Screen) Note(text string) { s.print(text + "\n") }

func (s *Screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (s *Screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.w, text) // if the output is closed, the error cannot be printed either
	if s.also != nil {
		_, _ = io.WriteString(s.also, colours.ReplaceAllString(text, ""))
	}
}

// Wrap puts words into lines of at most max characters, two spaces apart. A longer word has its own line.
func Wrap(words []string, limit int) []string {
	var lines []string
	for _, word := range words {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+2+utf8.RuneCountInString(word) <= limit {
			lines[last] += "  " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// InMillis is a duration as a demo tells it.
func InMillis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// InSeconds is a longer duration as a demo tells it.
func InSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
