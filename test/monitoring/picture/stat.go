package main

import (
	"fmt"
	"strings"

	"nodekeeper.dev/test/monitoring/cluster"
	"nodekeeper.dev/test/monitoring/grafana"
)

const (
	// largest is the size of the font of a value that is short enough.
	largest = 30
	// headroom is what the title of a panel takes.
	headroom = 26
	// sparkShare is the part of the height that has the spark.
	sparkShare = 0.28
	// titleSize is the size of the font of a title that is short enough.
	titleSize = 12
)

// big is a panel with one value.
type big struct {
	Text   string
	Colour string // the name of the colour
	Size   int    // of the font
	// TitleSize is that of the title.
	TitleSize float64
	X, Y      int
	// Spark is the path of the area under the values, "" without any.
	Spark string
}

// bigOf lays out a panel of a size.
func bigOf(p evaluated, story cluster.Story, width, height int) *big {
	b := &big{Text: "no data", Colour: "text", X: width / 2, Y: (headroom + int(float64(height)*(1-sparkShare))) / 2}
	if p.FieldConfig.Defaults.NoValue != "" {
		b.Text = p.FieldConfig.Defaults.NoValue
	}
	for _, s := range p.series {
		value, ok := s.last()
		if !ok {
			continue
		}
		b.Text = grafana.Format(value, p.FieldConfig.Defaults.Unit)
		b.Colour = p.FieldConfig.Defaults.Colour(value)
		b.Spark = spark(s, story, width, height)
	}
	b.TitleSize = min(titleSize, float64(width-3*gap)/(0.6*float64(len([]rune(p.Title)))))
	b.Size = min(largest, (width-4*gap)*10/(6*max(1, len([]rune(b.Text)))))
	return b
}

// spark is the area under a series, in the lower part of the panel.
func spark(s series, story cluster.Story, width, height int) string {
	highest := 0.0
	for _, p := range s.points {
		highest = max(highest, p.value)
	}
	if highest == 0 {
		return ""
	}
	to := plane{width: float64(width), height: float64(height) * sparkShare, bottom: float64(height), seconds: since(story, story.To), highest: highest}
	var path strings.Builder
	for _, run := range runs(s.points) {
		first, last := to.x(since(story, run[0].at)), to.x(since(story, run[len(run)-1].at))
		fmt.Fprintf(&path, "M%.1f %dL%sL%.1f %dZ", first, height, to.line(story, run), last, height)
	}
	return path.String()
}
