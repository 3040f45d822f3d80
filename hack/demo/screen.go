package main

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

// screen prints the output. It is safe for concurrent use.
type screen struct {
	start  time.Time // printed times are relative to it
	colour bool

	mu sync.Mutex
	w  io.Writer
}

// newScreen prints to f, in colour if f is a terminal and NO_COLOR (https://no-color.org) is not set.
func newScreen(f *os.File) *screen {
	return &screen{
		w: f, start: time.Now(),
		colour: isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// heading prints the title of a part.
func (s *screen) heading(text string) { s.print("\n" + s.paint(bold, text) + "\n") }

// say prints an action of an actor at a time, with details.
func (s *screen) say(at time.Time, who, text string, details ...string) {
	// Pad before painting: the codes of a colour have no width.
	s.print(fmt.Sprintf("%s  %s  %s\n", s.paint(dim, fmt.Sprintf("%7.3fs", at.Sub(s.start).Seconds())),
		s.paint(cyan, fmt.Sprintf("%-12s", who)), text))
	for _, line := range details {
		s.print(strings.Repeat(" ", textColumn) + line + "\n")
	}
}

// show prints events.
func (s *screen) show(events ...event) {
	for _, e := range inOrder(events...) {
		text, details := describe(e)
		s.say(e.at, string(e.kind), text, details...)
	}
}

// result prints whether a step had the expected result.
func (s *screen) result(ok bool, text string) {
	sign := s.paint(green, "✓")
	if !ok {
		sign = s.paint(red, "✗")
	}
	s.print("  " + sign + " " + text + "\n")
}

// note prints a line about the demo itself.
func (s *screen) note(text string) { s.print(text + "\n") }

func (s *screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.w, text) // if the output is closed, the error cannot be printed either
}

// wrap puts words into lines of at most max characters, two spaces apart. A longer word has its own line.
func wrap(words []string, limit int) []string {
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
