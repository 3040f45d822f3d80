package watcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/txn"
)

// metrics are the counters of the watcher. The state in memory is measured at collection, see
// register.
type metrics struct {
	recorded *prometheus.CounterVec
	tooLarge prometheus.Counter
}

func newMetrics() metrics {
	m := metrics{
		recorded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_transactions_recorded_total",
			Help: "Node events that this watcher saw and confirmed to be stored as transactions, by this or another watcher, by type.",
		}, []string{"type"}),
		tooLarge: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_transactions_too_large_total",
			Help: "Events that could not be recorded because the labels of the Node do not fit into a ConfigMap.",
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
			Help: "Node events that are not known to be stored yet. They exist only in the memory of this watcher and perhaps of others.",
		}, func() float64 { count, _ := w.unrecorded(); return float64(count) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "nodekeeper_oldest_unrecorded_event_age_seconds",
			Help: "Seconds since this watcher saw the oldest event that is not known to be stored; 0 if there are none.",
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

// unrecorded returns how many events are not known to be stored, and the age of the oldest.
func (w *Watcher) unrecorded() (count int, age time.Duration) {
	count, since := w.outbox.Oldest()
	if count == 0 {
		return 0, 0
	}
	return count, time.Since(since)
}
