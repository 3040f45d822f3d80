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

// newObservations registers the metrics of a shard of a ring. Shards of one ring in one process share
// them, but for the number of objects, which is that of the first.
func newObservations(ring string, objects func() float64) *observations {
	labels := prometheus.Labels{"ring": ring}
	registered(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "shard_objects", ConstLabels: labels, Help: "Main objects of this shard, by its caches.",
	}, objects))
	return &observations{
		fenced: registered(prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shard_fenced_requests_total", ConstLabels: labels,
			Help: "Requests that were not sent because the shard had lost the right to act.",
		})),
		waits: registered(prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shard_gate_wait_seconds", ConstLabels: labels,
			Help:    "How long the first reconcile of an object that has moved here waited until the caches had its children.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30},
		})),
	}
}

// registered registers a metric, or returns the one that is registered by its name. After any other error,
// which a metric of the program with this name causes, the shard works, and its metric is not served.
func registered[T prometheus.Collector](c T) T {
	err := metrics.Registry.Register(c)
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := are.ExistingCollector.(T); ok {
			return existing
		}
	}
	return c
}
