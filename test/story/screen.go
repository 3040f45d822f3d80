package story

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// width is the maximum length of a line; only a path or a long label exceeds it.
	width = 96
	// textColumn is the column of the text, after the time and the actor.
	textColumn = 24
)

// The colours, as SGR parameters.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

// Screen prints the output of a demo. It is safe for concurrent use.
type Screen struct {
	start  time.Time // what printed times are relative to
	colour bool

	mu sync.Mutex
	w  io.Writer
}

// newScreen prints to f, in colour if f is a terminal and NO_COLOR (https://no-color.org) is not set.
func newScreen(f *os.File) *Screen {
	info, err := f.Stat()
	isTerminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &Screen{w: f, start: time.Now(), colour: isTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Heading prints the title of a part.
func (s *Screen) Heading(text string) { s.print("\n" + s.paint(bold, text) + "\n") }

// Action prints what an actor did, with the time and details.
func (s *Screen) Action(at time.Time, who, text string, details ...string) {
	// Pad before painting: the codes of a colour have no width.
	var lines strings.Builder
	_, _ = fmt.Fprintf(&lines, "%s  %s  %s\n", s.paint(dim, fmt.Sprintf("%7.3fs", at.Sub(s.start).Seconds())), s.paint(cyan, fmt.Sprintf("%-12s", who)), text)
	for _, detail := range details {
		lines.WriteString(strings.Repeat(" ", textColumn) + detail + "\n")
	}
	s.print(lines.String())
}

// Note prints a line about the demo itself.
func (s *Screen) Note(text string) { s.print(text + "\n") }

// result prints whether a step had the expected result.
func (s *Screen) result(ok bool, text string) {
	sign := s.paint(green, "✓")
	if !ok {
		sign = s.paint(red, "✗")
	}
	s.print("  " + sign + " " + text + "\n")
}

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
}

// Wrap puts words into lines that fit below the text of an action, two spaces apart. A longer word
// has its own line.
func Wrap(words []string) []string {
	var lines []string
	for _, word := range words {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+2+utf8.RuneCountInString(word) <= width-textColumn {
			lines[last] += "  " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// InMillis is a duration as a demo prints it.
func InMillis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// InSeconds is a longer duration as a demo prints it.
func InSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
