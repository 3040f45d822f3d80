package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"nodekeeper.dev/test/monitoring/grafana"
	"nodekeeper.dev/test/monitoring/monitor"
)

// evaluated is a panel with what its queries found.
type evaluated struct {
	grafana.Panel

	series []series
	// empty are the queries that have found nothing.
	empty []string
}

// series is what one line shows.
type series struct {
	name   string
	points []point
}

// point is a value, and when it was that. There is none for a time at which the query has no value.
type point struct {
	at    time.Time
	value float64
}

// last returns the last value of a series.
func (s series) last() (value float64, ok bool) {
	if len(s.points) == 0 {
		return 0, false
	}
	return s.points[len(s.points)-1].value, true
}

// evaluate runs the queries of all panels.
func evaluate(ctx context.Context, d grafana.Dashboard, archive monitor.Archive) ([]evaluated, error) {
	all := make([]evaluated, 0, len(d.Panels))
	for _, panel := range d.Panels {
		e := evaluated{Panel: panel}
		for _, target := range panel.Targets {
			found, err := seriesOf(ctx, target, archive)
			if err != nil {
				return nil, err
			}
			e.series = append(e.series, found...)
			if !slices.ContainsFunc(found, func(s series) bool { return len(s.points) > 0 }) {
				e.empty = append(e.empty, target.Expr)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// complete returns an error for each query that has found nothing in the whole run, unless the
// dashboard has words for that. The run must show all that there is to see.
func complete(all []evaluated) error {
	var missing []error
	for _, e := range all {
		if e.FieldConfig.Defaults.NoValue != "" {
			continue
		}
		for _, query := range e.empty {
			missing = append(missing, fmt.Errorf("panel %q: there is no data for %s", e.Title, query))
		}
	}
	return errors.Join(missing...)
}

// seriesOf runs a query. The series are sorted by their names, so that a program has the same
// colour in all panels.
func seriesOf(ctx context.Context, target grafana.Target, archive monitor.Archive) ([]series, error) {
	found, err := archive.Query(ctx, target.Query(intervalOf(archive)))
	if err != nil {
		return nil, err
	}
	all := make([]series, 0, len(found))
	for _, one := range found {
		s := series{name: target.Legend(one.Metric.Get)}
		for _, f := range one.Floats {
			if !math.IsNaN(f.F) && !math.IsInf(f.F, 0) { // as the quantile of no restores
				s.points = append(s.points, point{at: time.UnixMilli(f.T), value: f.F})
			}
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

func intervalOf(archive monitor.Archive) grafana.Interval {
	return grafana.Interval{Step: archive.Step, Scrape: monitor.Interval}
}
