package shard

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// observations are the metrics of a shard.
type observations struct {
	waits  prometheus.Observer
	fenced prometheus.Counter
}

// newObservations registers the metrics of a shard of a ring. Shards of one ring in one process
// share them; the gauge of objects is that of the first shard.
func newObservations(ring string, objects func() float64) *observations {
	labels := prometheus.Labels{"ring": ring}
	registered(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "shard_objects", ConstLabels: labels, Help: "Main objects in the caches of this shard.",
	}, objects))
	return &observations{
		fenced: registered(prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shard_fenced_requests_total", ConstLabels: labels,
			Help: "Requests that were not sent because the shard had lost the right to act.",
		})),
		waits: registered(prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shard_gate_wait_seconds", ConstLabels: labels,
			Help:    "How long the first reconcile of an object that moved to this shard waited until the caches held its children.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30},
		})),
	}
}

// registered registers a metric, or returns the one that is already registered under its name. On
// any other error, such as a metric of the program with the same name, the shard works but its
// metric is not served.
func registered[T prometheus.Collector](c T) T {
	err := metrics.Registry.Register(c)
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := are.ExistingCollector.(T); ok {
			return existing
		}
	}
	return c
}
