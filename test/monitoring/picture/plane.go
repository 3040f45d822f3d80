package main

import (
	"fmt"
	"strings"
	"time"

	"nodekeeper.dev/test/monitoring/cluster"
)

// mostPause is the time between two points that a line still joins.
const mostPause = 1500 * time.Millisecond

// plane maps times and values to places.
type plane struct {
	left, bottom, width, height float64
	// seconds and highest are what the width and the height show.
	seconds, highest float64
}

func (p plane) x(seconds float64) float64 { return p.left + p.width*seconds/p.seconds }
func (p plane) y(value float64) float64   { return p.bottom - p.height*value/p.highest }

// line returns the places of some points, without those that change nothing.
func (p plane) line(story cluster.Story, points []point) string {
	places := make([]string, 0, len(points))
	for i, one := range points {
		if i > 0 && i < len(points)-1 && points[i-1].value == one.value && one.value == points[i+1].value {
			continue
		}
		places = append(places, fmt.Sprintf("%.1f %.1f", p.x(since(story, one.at)), p.y(one.value)))
	}
	return strings.Join(places, "L")
}

// runs returns the parts of a series that have no gap.
func runs(points []point) [][]point {
	var all [][]point
	for i, one := range points {
		if i == 0 || one.at.Sub(points[i-1].at) > mostPause {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], one)
	}
	return all
}
