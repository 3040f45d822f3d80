package watcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/txn"
)

// metrics are those that the watcher counts. What it has in memory is counted when it is asked for:
// see register.
type metrics struct {
	recorded *prometheus.CounterVec
	tooLarge prometheus.Counter
}

func newMetrics() metrics {
	m := metrics{
		recorded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_transactions_recorded_total",
			Help: "Events of Nodes that this watcher saw and knows to be stored as transactions, whichever watcher stored them, by type.",
		}, []string{"type"}),
		tooLarge: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_transactions_too_large_total",
			Help: "Events that could not be recorded because the labels of the Node do not fit a ConfigMap.",
		}),
	}
	for _, typ := range txn.Types() {
		m.recorded.WithLabelValues(string(typ))
	}
	return m
}

// register registers the metrics of the watcher.
func (w *Watcher) register(r prometheus.Registerer, h *rewind.Detector) error {
	all := []prometheus.Collector{
		w.metrics.recorded,
		w.metrics.tooLarge,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "nodekeeper_unrecorded_events",
			Help: "Events of Nodes that are not known to be stored yet. They are only in this watcher's memory, and perhaps in that of others.",
		}, func() float64 { count, _ := w.unrecorded(); return float64(count) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "nodekeeper_oldest_unrecorded_event_age_seconds",
			Help: "Seconds since this watcher saw the oldest event that is not known to be stored; 0 if there is none.",
		}, func() float64 { _, age := w.unrecorded(); return age.Seconds() }),
	}
	if h != nil {
		all = append(all, h)
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

// unrecorded returns how many events are not known to be stored, and how long ago the oldest was
// seen.
func (w *Watcher) unrecorded() (count int, age time.Duration) {
	count, since := w.outbox.Oldest()
	if count == 0 {
		return 0, 0
	}
	return count, time.Since(since)
}
