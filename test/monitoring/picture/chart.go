package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"nodekeeper.dev/test/monitoring/cluster"
	"nodekeeper.dev/test/monitoring/grafana"
)

const (
	// legendLine and legendMark are the height of a line of the legend, and the width of the mark
	// before a name.
	legendLine, legendMark = 15, 18
	// axisRoom is what the labels of the times take.
	axisRoom = 20
	// colours is how many the picture has for lines.
	colours = 10
	// timeTick is the least time between two labels, in seconds, and timeRoom the least space.
	timeTick, timeRoom = 20, 46
)

// chart is a panel with lines.
type chart struct {
	Left, Right, Top, Bottom float64
	Values, Times, Marks     []label
	Lines                    []line
	// NoData reports whether there is nothing to show. X and Y are the middle.
	NoData bool
	X, Y   float64
}

// label is a text at a place of an axis.
type label struct {
	At   float64
	Text string
}

// line is a series: its path, and its place in the legend.
type line struct {
	Colour         int
	Path           string
	Name           string
	NameX, NameY   float64
	MarkX1, MarkX2 float64
}

// chartOf lays out a panel of a size.
func chartOf(p evaluated, story cluster.Story, width, height int) *chart {
	highest := 0.0
	for _, s := range p.series {
		for _, one := range s.points {
			highest = max(highest, one.value)
		}
	}
	c := &chart{Top: headroom + 14, Right: float64(width - 20), NoData: true}
	ticks := grafana.Ticks(highest, p.FieldConfig.Defaults.Unit)
	for _, tick := range ticks {
		c.Left = max(c.Left, widthOf(tick.Text)+14)
	}
	c.Bottom = float64(height) - axisRoom - legendLine*float64(c.legend(p.series, width, height)) - gap
	c.X, c.Y = (c.Left+c.Right)/2, (c.Top+c.Bottom)/2
	to := plane{
		left: c.Left, bottom: c.Bottom, width: c.Right - c.Left, height: c.Bottom - c.Top,
		seconds: since(story, story.To), highest: ticks[len(ticks)-1].Value,
	}
	for _, tick := range ticks {
		c.Values = append(c.Values, label{At: to.y(tick.Value), Text: tick.Text})
	}
	tick := timeTick * math.Ceil(timeRoom/(to.width*timeTick/to.seconds))
	for at := 0.0; at <= to.seconds; at += tick {
		c.Times = append(c.Times, label{At: to.x(at), Text: fmt.Sprintf("%.0f s", at)})
	}
	for i, e := range story.Events {
		c.Marks = append(c.Marks, label{At: to.x(since(story, e.At)), Text: strconv.Itoa(i + 1)})
	}
	for i, s := range p.series {
		c.plot(&c.Lines[i], s, to, story)
	}
	return c
}

// plot draws a series.
func (c *chart) plot(l *line, s series, to plane, story cluster.Story) {
	var path strings.Builder
	for _, run := range runs(s.points) {
		c.NoData = false
		if len(run) == 1 {
			run = append(run, run[0]) // a line from a point to itself, which the round cap makes a dot
		}
		path.WriteString("M" + to.line(story, run))
	}
	l.Path = path.String()
}

// legend places the names at the bottom of the panel, and returns how many lines they take.
func (c *chart) legend(all []series, width, height int) (rows int) {
	x := float64(gap)
	for i, s := range all {
		needs := legendMark + widthOf(s.name) + 10
		if i == 0 || x+needs > float64(width-gap) {
			rows++
			x = gap + 4
		}
		c.Lines = append(c.Lines, line{Colour: i % colours, Name: s.name, NameX: x + legendMark, NameY: float64(rows), MarkX1: x, MarkX2: x + legendMark - 5})
		x += needs
	}
	for i := range c.Lines {
		c.Lines[i].NameY = float64(height) - gap - 3 - legendLine*(float64(rows)-c.Lines[i].NameY)
	}
	return rows
}
