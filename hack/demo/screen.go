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
	// width is what a line of the story has at most; only a path or a long label can exceed it.
	width = 96
	// textColumn is where text begins, after the time and who did it.
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

// screen is where the story is printed. It is safe for concurrent use.
type screen struct {
	start  time.Time // what times are relative to
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

// heading begins a part of the story.
func (s *screen) heading(text string) { s.print("\n" + s.paint(bold, text) + "\n") }

// say prints what someone did at a time, and details of it.
func (s *screen) say(at time.Time, who, text string, details ...string) {
	// The name of who is padded before it is painted: a colour has no width.
	s.print(fmt.Sprintf("%s  %s  %s\n", s.paint(dim, fmt.Sprintf("%7.3fs", at.Sub(s.start).Seconds())),
		s.paint(cyan, fmt.Sprintf("%-12s", who)), text))
	for _, line := range details {
		s.print(strings.Repeat(" ", textColumn) + line + "\n")
	}
}

// show prints what was seen.
func (s *screen) show(events ...event) {
	for _, e := range inOrder(events...) {
		text, details := describe(e)
		s.say(e.at, string(e.kind), text, details...)
	}
}

// result prints whether something is as told.
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
	_, _ = io.WriteString(s.w, text) // there is nobody to tell that nobody listens
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
