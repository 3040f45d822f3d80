package telemetry

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/txn"
)

// metrics are the counters of a processor. stock.go of package processor computes metrics from the
// cache.
type metrics struct {
	applied   *prometheus.CounterVec
	restore   prometheus.Histogram
	refused   prometheus.Counter
	setAside  prometheus.Counter
	conflicts *prometheus.CounterVec
	unsent    *prometheus.CounterVec
}

// Values of the label object of nodekeeper_write_conflicts_total.
const (
	nodeObject   = "node"
	recordObject = "record"
)

func newMetrics() metrics {
	m := metrics{
		applied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_transactions_applied_total",
			Help: "Transactions applied, by type and by action: saved into the record, restored onto the Node, opened (only the startup taint was removed), or dropped for having no effect.",
		}, []string{"type", "action"}),
		restore: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nodekeeper_restore_duration_seconds",
			Help: "Seconds from a node's return until its labels were restored. The start is when a watcher saw the node (by the watcher's clock), " +
				"clamped to the second of its creationTimestamp (by the API server's clock); the end is by the processor's clock.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_restores_refused_total",
			Help: "Attempts to restore labels that the API server or an admission plugin refused.",
		}),
		setAside: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_labels_refused_total",
			Help: "Labels, annotations and taints that the API server or an admission plugin refused to set on a returned node, while everything else was restored.",
		}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_write_conflicts_total",
			Help: "Writes of records and Nodes that were refused because the object had changed since it was read, and were retried from live reads.",
		}, []string{"object"}),
		unsent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_events_left_out_total",
			Help: "Normal events on Nodes that were dropped by the rate limit, by reason.",
		}, []string{"reason"}),
	}
	for _, typ := range txn.Types() {
		for _, action := range []preserve.Action{preserve.Nothing, preserve.Save, preserve.Restore, preserve.Open} {
			m.applied.WithLabelValues(string(typ), effect(action))
		}
	}
	for _, object := range []string{nodeObject, recordObject} {
		m.conflicts.WithLabelValues(object)
	}
	for _, reason := range []string{reasons.LabelsSaved, reasons.LabelsRestored, reasons.MachineLabelsWithheld, reasons.RestrictedLabelsWaiting} {
		m.unsent.WithLabelValues(reason)
	}
	return m
}

// effect returns the value of the label action.
func effect(action preserve.Action) string {
	switch action {
	case preserve.Save:
		return "saved"
	case preserve.Restore:
		return "restored"
	case preserve.Open:
		return "opened"
	case preserve.Nothing:
	}
	return "dropped"
}

// countApplied counts a transaction that has had its effect.
func (m metrics) countApplied(t txn.Transaction, action preserve.Action) {
	m.applied.WithLabelValues(string(t.Type), effect(action)).Inc()
}

// returnedAt returns when a node returned: the time at which a watcher saw it, clamped to the
// second of the Node's creationTimestamp. The watcher's time is precise, but late if no watcher
// ran, and from another clock.
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

// Register registers collectors.
func Register(r prometheus.Registerer, all ...prometheus.Collector) error {
	var errs []error
	for _, one := range all {
		errs = append(errs, r.Register(one))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}
