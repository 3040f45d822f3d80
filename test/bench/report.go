package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scene identifies the measurement that figures belong to.
type scene struct {
	name            string
	nodes, replicas int
}

// figure is one measured value.
type figure struct {
	scene

	what, unit string
	value      float64
}

// report prints and collects figures.
type report struct {
	out     io.Writer
	scene   scene // the scene of new figures
	figures []figure
}

func (r *report) heading(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, "\n"+format+"\n", args...)
}

func (r *report) add(what, unit string, value float64) {
	r.figures = append(r.figures, figure{scene: r.scene, what: what, unit: unit, value: value})
	_, _ = fmt.Fprintf(r.out, "  %-40s %10.2f %s\n", what, value, unit)
}

// value returns the last figure with that name.
func (r *report) value(what string) float64 {
	for _, f := range slices.Backward(r.figures) {
		if f.what == what {
			return f.value
		}
	}
	return 0
}

// perNode returns the requests per node that were added last.
func (r *report) perNode() calls {
	all := calls{}
	for _, f := range r.figures {
		if kind, ok := strings.CutSuffix(f.what, " per node"); ok && kind != "writes" && kind != "reads" {
			resource, verb, _ := strings.Cut(kind, " ")
			all[call{resource, verb}] = f.value
		}
	}
	return all
}

// percentile returns the p-th percentile by the nearest-rank method.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

// addMeasured adds the latencies, the requests per node, and the resources of each process.
func (r *report) addMeasured(m *measured) {
	for _, p := range []int{50, 99, 100} {
		r.add(fmt.Sprintf("created to restored, p%d", p), "ms", float64(percentile(m.latencies, p))/float64(time.Millisecond))
	}
	if len(m.creations) > 0 {
		for _, p := range []int{50, 99} {
			r.add(fmt.Sprintf("request that creates a node, p%d", p), "ms", float64(percentile(m.creations, p))/float64(time.Millisecond))
		}
	}
	m.answers.addTo(r)
	r.add("writes per node", "", m.calls.writes())
	r.add("reads per node", "", m.calls.reads())
	for _, one := range m.calls.sorted() {
		r.add(one.resource+" "+one.verb+" per node", "", m.calls[one])
	}
	for _, identity := range slices.Sorted(maps.Keys(m.usages)) {
		r.add(identity+" CPU", "s", m.usages[identity].CPU.Seconds())
		r.add(identity+" memory", "MiB", m.usages[identity].PeakMiB())
	}
}

// writeCSV writes one line per figure.
func (r *report) writeCSV(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	rows := [][]string{{"scene", "nodes", "replicas", "what", "unit", "value"}}
	for _, f := range r.figures {
		rows = append(rows, []string{
			f.name, strconv.Itoa(f.nodes), strconv.Itoa(f.replicas), f.what, f.unit, strconv.FormatFloat(f.value, 'f', 3, 64),
		})
	}
	return w.WriteAll(rows)
}
