package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"strings"
	"text/template"
	"unicode/utf8"

	"nodekeeper.dev/test/story"
)

// The measures of the picture, in its units.
const (
	charWidth  = 7.85 // of the font at 13
	lineHeight = 19
	margin     = 18
	titleBar   = 34
)

// The times of the animation, in seconds: a line follows the last one after lineTime, what the user does after userTime, and
// the whole stays for holdTime before it begins again.
const (
	lineTime = 0.25
	userTime = 1.0
	holdTime = 10.0
)

//go:embed picture.svg
var pictureText string

var picture = template.Must(template.New("picture").Parse(pictureText))

// line is one of the picture.
type line struct {
	Y     float64
	Spans []span
	// Shown is when the line appears, in percent of the time that the animation takes.
	Shown float64
}

// span is a text of one colour.
type span struct {
	X     float64
	Class string
	Text  string // escaped
}

// draw returns the picture of the parts of an output.
func draw(parts string) []byte {
	texts := append([]string{"$ make demo", "…"}, visible(parts)...)
	var lines []line
	now, width := 0.5, 0
	for i, text := range texts {
		switch {
		case i == 0:
		case isOf(text, "user"):
			now += userTime
		default:
			now += lineTime
		}
		width = max(width, utf8.RuneCountInString(text))
		lines = append(lines, line{Y: titleBar + lineHeight*float64(i+1), Spans: spansOf(text), Shown: now})
	}
	total := now + holdTime
	for i := range lines {
		lines[i].Shown *= 100 / total
	}
	var b bytes.Buffer
	fullWidth, height := 2*margin+int(charWidth*float64(width)+1), titleBar+lineHeight*len(lines)+margin
	err := picture.Execute(&b, map[string]any{
		"Width": fullWidth, "Height": height, "InnerWidth": fullWidth - 1, "InnerHeight": height - 1,
		"Total": fmt.Sprintf("%.1f", total), "Lines": lines,
	})
	if err != nil {
		panic(err) // the template is part of this program
	}
	return b.Bytes()
}

// visible returns the lines that the picture has: all but those of transactions, which are how it works and not what it does.
func visible(parts string) []string {
	var lines []string
	hidden := false
	for text := range strings.Lines(parts) {
		text = strings.TrimRight(text, "\n")
		if isDetail := strings.HasPrefix(text, strings.Repeat(" ", story.TextColumn)); !isDetail {
			hidden = isOf(text, "transaction")
		}
		if !hidden {
			lines = append(lines, text)
		}
	}
	return lines
}

// The columns of a line of an actor: its time, who it is, and what it does.
const (
	timeColumn  = 0
	actorColumn = 10
)

func isOf(text, actor string) bool {
	return len(text) > story.TextColumn && strings.TrimSpace(text[actorColumn:story.TextColumn]) == actor
}

// spansOf colours a line as the demo does on a terminal.
func spansOf(text string) []span {
	at := func(column int, class, part string) span {
		trimmed := strings.TrimLeft(part, " ")
		column += len(part) - len(trimmed)
		return span{X: margin + charWidth*float64(column), Class: class, Text: html.EscapeString(strings.TrimRight(trimmed, " "))}
	}
	switch {
	case strings.TrimSpace(text) == "":
		return nil
	case strings.HasPrefix(text, "  ✓ "):
		return []span{at(2, "ok", "✓"), at(4, "", text[len("  ✓ "):])}
	case strings.HasPrefix(text, strings.Repeat(" ", story.TextColumn)):
		return []span{at(0, "", text)}
	case text[0] == ' ':
		return []span{
			at(timeColumn, "dim", text[:actorColumn]), at(actorColumn, "who", text[actorColumn:story.TextColumn]),
			at(story.TextColumn, "", text[story.TextColumn:]),
		}
	case strings.HasPrefix(text, "…"):
		return []span{at(0, "dim", text)}
	}
	return []span{at(0, "bold", text)}
}
