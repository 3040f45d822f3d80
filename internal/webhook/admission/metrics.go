package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/telemetry"
)

// result is the outcome of a request, as a label of a metric.
type result string

const (
	// complete means that the Node has all of its labels.
	complete result = "restored"
	// gated means that the Node waits for the processors behind the startup taint.
	gated result = "gated"
	// uncertain means that the Node is gated because its record could not be read from the cache.
	uncertain result = "uncertain"
	// untouched means that the Node was left as requested: it has no record, or is not selected.
	untouched result = "untouched"
	// failed means that the request could not be read, the answer panicked, or the processors have
	// another node selector. The Node was left as requested.
	failed result = "failed"
)

// Metrics counts the requests to the webhook by outcome. It is safe for concurrent use.
type Metrics struct {
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	held     prometheus.Counter
}

// NewMetrics returns metrics and registers them, with a gauge of the cache's staleness, which
// behind returns. It returns an error if one of the names is already registered.
func NewMetrics(registry prometheus.Registerer, behind func() time.Duration) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodekeeper_webhook_requests_total",
			Help: "Requests that create Nodes, by result: restored with all labels, gated by the startup taint, uncertain (gated, because there was no answer), untouched, or failed (left as requested: it could not be read, or the processors have another --node-selector).",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nodekeeper_webhook_duration_seconds",
			Help:    "Seconds from reading a request that creates a Node until it is answered.",
			Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1},
		}),
		held: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodekeeper_webhook_held_labels_total",
			Help: "Labels, annotations and taints that the webhook left to the processors.",
		}),
	}
	for _, r := range []result{complete, gated, uncertain, untouched, failed} {
		m.requests.WithLabelValues(string(r))
	}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodekeeper_webhook_cache_age_seconds",
		Help: "Seconds that the cache of the records may be behind; 0 while its watch is open.",
	}, func() float64 { return behind().Seconds() })
	return m, telemetry.Register(registry, m.requests, m.duration, m.held, age)
}

func (m *Metrics) observe(r result, took time.Duration) {
	m.requests.WithLabelValues(string(r)).Inc()
	m.duration.Observe(took.Seconds())
}

// restored counts the labels that are held back, and returns the result.
func (m *Metrics) restored(a preserve.Admission) result {
	for range a.Held.All() {
		m.held.Inc()
	}
	if a.Gated() {
		return gated
	}
	return complete
}
