package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode"

	"nodekeeper.dev/test/monitoring/cluster"
	"nodekeeper.dev/test/monitoring/grafana"
)

// The measures of the picture, in its units.
const (
	column   = 39 // of the grid
	rowUnit  = 30 // of the grid
	gap      = 6  // between panels
	margin   = 12
	heading  = 42 // of the picture
	lineUnit = 17 // of the list of events
)

//go:embed picture.svg
var pictureText string

var pictureTemplate = template.Must(template.New("picture").Funcs(template.FuncMap{"esc": html.EscapeString, "n": number}).Parse(pictureText))

// sheet is the whole picture.
type sheet struct {
	Width, Height int
	Title, About  string
	Events        []entry
	Panels        []box
}

// entry is an event in the list.
type entry struct {
	X, Y         int
	Number, When string
	What         string
}

// box is a panel. One of Chart and Big is set, or neither for a row.
type box struct {
	X, Y, W, H int
	Title      string
	// About is the description of the panel, and Queries are its expressions.
	About   string
	Queries []string
	Chart   *chart
	Big     *big
}

// draw returns the picture of a dashboard.
func draw(title, about string, panels []evaluated, story cluster.Story) []byte {
	s := sheet{Width: 2*margin + grafana.Columns*column, Title: title, About: about, Events: entries(story)}
	top := heading + lineUnit*((len(story.Events)+1)/2) + gap
	for _, p := range panels {
		b := boxOf(p, story)
		b.Y += top
		s.Height = max(s.Height, b.Y+b.H+margin)
		s.Panels = append(s.Panels, b)
	}
	var out bytes.Buffer
	if err := pictureTemplate.Execute(&out, s); err != nil {
		panic(err) // the template is part of this program
	}
	return out.Bytes()
}

// number writes a place as exactly as a picture needs it.
func number(place float64) string { return strconv.FormatFloat(place, 'f', 1, 64) }

// widthOf is how wide a text of the small font may be: the fonts of readers differ, and this is one
// of the wide ones.
func widthOf(text string) float64 {
	width := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("ijl.:,;'() /", r):
			width += 3.8
		case strings.ContainsRune("mwMW", r) || unicode.IsUpper(r):
			width += 7.8
		default:
			width += 6.7
		}
	}
	return width
}

// entries are the events in two columns.
func entries(story cluster.Story) []entry {
	all := make([]entry, 0, len(story.Events))
	half := (len(story.Events) + 1) / 2
	for i, e := range story.Events {
		all = append(all, entry{
			X: margin + i/half*(grafana.Columns*column/2), Y: heading + lineUnit*(i%half) + lineUnit/2,
			Number: strconv.Itoa(i + 1), When: fmt.Sprintf("%.0f s", since(story, e.At)), What: e.What,
		})
	}
	return all
}

// since is the time from the start of the story, in seconds.
func since(story cluster.Story, at time.Time) float64 { return at.Sub(story.From).Seconds() }

// boxOf lays a panel out, in a picture that begins with the panels.
func boxOf(p evaluated, story cluster.Story) box {
	at := p.GridPos
	b := box{
		X: margin + at.X*column + gap/2, Y: at.Y * rowUnit, W: at.W*column - gap, H: at.H*rowUnit - gap,
		Title: p.Title, About: p.Description,
	}
	for _, target := range p.Targets {
		b.Queries = append(b.Queries, target.Expr)
	}
	switch p.Type {
	case grafana.TimeSeries:
		b.Chart = chartOf(p, story, b.W, b.H)
	case grafana.Stat:
		b.Big = bigOf(p, story, b.W, b.H)
	}
	return b
}
