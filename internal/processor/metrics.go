package processor

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// metrics are those that the processor counts. What is counted in the cache when it is asked for is in stock.go.
type metrics struct {
	applied   *prometheus.CounterVec
	restore   prometheus.Histogram
	refused   prometheus.Counter
	conflicts *prometheus.CounterVec
	unsent    *prometheus.CounterVec
}

// The values of the label object of nodekeeper_write_conflicts_total.
const (
	nodeObject   = "node"
	recordObject = "record"
)

func newMetrics() metrics {
	m := metrics{
		applied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_transactions_applied_total",
			Help: "Transactions applied, by type and by what that was: labels saved into the record, restored onto the Node, or dropped for having no effect.",
		}, []string{"type", "action"}),
		restore: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nodekeeper_restore_duration_seconds",
			Help: "Seconds from a node's return until its labels were restored. It returned when a watcher saw it (by the watcher's clock), " +
				"held within the second of its creationTimestamp (the API server's clock), which alone knows only the second; the end is by the processor's clock.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_restores_refused_total",
			Help: "Attempts to restore labels that the API server or an admission plugin refused.",
		}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_write_conflicts_total",
			Help: "Writes of records and Nodes that were refused because the object had changed since it was read, and were decided anew.",
		}, []string{"object"}),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_events_left_out_total",
			Help: "Normal events on Nodes that were not made because there were too many of them, by reason.",
		}, []string{"reason"}),
	}
	for _, typ := range txn.Types() {
		for _, action := range []preserve.Action{preserve.Nothing, preserve.Save, preserve.Restore} {
			m.applied.WithLabelValues(string(typ), effect(action))
		}
	}
	for _, object := range []string{nodeObject, recordObject} {
		m.conflicts.WithLabelValues(object)
	}
	for _, reason := range []string{labelsSaved, labelsRestored} {
		m.unsent.WithLabelValues(reason)
	}
	return m
}

// effect is the value of the label action.
func effect(action preserve.Action) string {
	switch action {
	case preserve.Save:
		return "saved"
	case preserve.Restore:
		return "restored"
	case preserve.Nothing:
	}
	return "dropped"
}

// countApplied counts a transaction whose effect is stored.
func (m metrics) countApplied(t txn.Transaction, action preserve.Action) {
	m.applied.WithLabelValues(string(t.Type), effect(action)).Inc()
}

// returnedAt is when a node returned, given the creationTimestamp of its Node, which the API server cuts to the second, and
// when a watcher saw it, which is precise, but late if no watcher ran, and by a clock of its own.
func returnedAt(created, seen time.Time) time.Time {
	earliest, latest := created, created.Add(time.Second)
	switch {
	case seen.Before(earliest):
		return earliest
	case seen.After(latest):
		return latest
	}
	return seen
}

// register registers the metrics of the processor and of what it is made from.
func (p *Processor) register(r prometheus.Registerer) error {
	m := p.metrics
	all := []prometheus.Collector{m.applied, m.restore, m.refused, m.conflicts, m.unsent, p.locks, newStock(p)}
	if p.history != nil {
		all = append(all, p.history)
	}
	var errs []error
	for _, one := range all {
		errs = append(errs, r.Register(one))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}
