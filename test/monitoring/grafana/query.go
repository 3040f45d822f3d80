package grafana

import (
	"regexp"
	"strings"
	"time"
)

// Interval is the time between two points that are asked for, and that between two scrapes.
type Interval struct{ Step, Scrape time.Duration }

// Rate is $__rate_interval: long enough for four scrapes, so that one of them may fail.
func (i Interval) Rate() time.Duration { return max(i.Step+i.Scrape, 4*i.Scrape) }

// Query returns the query with the values of Grafana's variables.
func (t Target) Query(i Interval) string {
	return strings.ReplaceAll(t.Expr, "$__rate_interval", i.Rate().String())
}

// variable is one of the labels in a legend.
var variable = regexp.MustCompile(`{{\s*([a-zA-Z_]\w*)\s*}}`)

// Legend returns the name of a series with these labels.
func (t Target) Legend(label func(name string) string) string {
	return variable.ReplaceAllStringFunc(t.LegendFormat, func(text string) string {
		return label(variable.FindStringSubmatch(text)[1])
	})
}
