package nodelock

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of a Locker.
type metrics struct {
	contentions prometheus.Counter
	wait        prometheus.Histogram
}

var _ prometheus.Collector = (*Locker)(nil)

func newMetrics() metrics {
	return metrics{
		contentions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_lock_contentions_total",
			Help: "Failed attempts to take the lock of a node because it was held, by another processor or by other work of this one.",
		}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nodekeeper_lock_wait_seconds",
			Help: "Seconds from the first attempt to take the lock of a node until it was taken.",
			// From a write that is answered at once to a crashed holder, whose LeaseDuration must
			// pass.
			Buckets: []float64{0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
	}
}

// notTaken counts a failed attempt to take the lock, by reason.
func (m metrics) notTaken(reason error) {
	if errors.Is(reason, ErrHeld) {
		m.contentions.Inc()
	}
}

// Describe describes the metrics of [Locker.Collect].
func (l *Locker) Describe(ch chan<- *prometheus.Desc) {
	l.metrics.contentions.Describe(ch)
	l.metrics.wait.Describe(ch)
}

// Collect collects how often locks were held by others, and the waiting times.
func (l *Locker) Collect(ch chan<- prometheus.Metric) {
	l.metrics.contentions.Collect(ch)
	l.metrics.wait.Collect(ch)
}
