package shard

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// observations are the metrics of a shard.
type observations struct {
	waits  prometheus.Observer
	fenced prometheus.Counter

	mu    sync.Mutex
	gates []*gate
}

// newObservations registers the metrics of a shard of a ring. Shards of one ring in one process share
// them, but for the number of objects, which is that of the first.
func newObservations(ring string) *observations {
	o := &observations{}
	labels := prometheus.Labels{"ring": ring}
	o.fenced = registered(prometheus.NewCounter(prometheus.CounterOpts{
		Name: "shard_fenced_requests_total", ConstLabels: labels,
		Help: "Requests that were not sent because the shard had lost the right to act.",
	}))
	o.waits = registered(prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "shard_gate_wait_seconds", ConstLabels: labels,
		Help:    "How long the first reconcile of an object waited until the caches had its children.",
		Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30},
	}))
	registered(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "shard_objects", ConstLabels: labels, Help: "Objects of this shard that it has worked on.",
	}, o.objects))
	return o
}

// observe counts the objects of a gate, too.
func (o *observations) observe(g *gate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gates = append(o.gates, g)
}

func (o *observations) objects() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, g := range o.gates {
		n += g.count()
	}
	return float64(n)
}

// registered registers a metric, or returns the one that is registered by its name.
func registered[T prometheus.Collector](c T) T {
	err := metrics.Registry.Register(c)
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := are.ExistingCollector.(T); ok {
			return existing
		}
	}
	return c
}
