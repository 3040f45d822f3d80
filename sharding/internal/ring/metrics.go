package ring

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// metrics are the metrics of all rings.
type metrics struct {
	shards, slots *prometheus.GaugeVec
	generation    *prometheus.GaugeVec
	conditions    *prometheus.GaugeVec
	computations  *prometheus.CounterVec
}

func newMetrics() metrics {
	const ring = "ring"
	return metrics{
		shards: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_shards", Help: "Shards with an accepted Lease, by ring and state.",
		}, []string{ring, "state"}),
		slots: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_slots", Help: "Slots of each shard in the table, out of 1,024.",
		}, []string{ring, "shard"}),
		generation: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_ring_generation", Help: "Generation of the table of each ring.",
		}, []string{ring}),
		conditions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_ring_condition", Help: "Conditions of each ring with their reason: 1 if True, 0 if False or Unknown.",
		}, []string{ring, "condition", "reason"}),
		computations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sharder_ring_computations_total", Help: "Tables computed and stored because shards joined, left or died.",
		}, []string{ring}),
	}
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.shards, m.slots, m.generation, m.conditions, m.computations}
}

// set sets the metrics of a ring according to its status.
func (m metrics) set(ring string, s *v1alpha1.ClusterRingStatus) {
	of := prometheus.Labels{"ring": ring}
	m.shards.DeletePartialMatch(of)
	m.slots.DeletePartialMatch(of)
	m.conditions.DeletePartialMatch(of)
	for _, c := range s.Conditions {
		value := 0.0
		if c.Status == metav1.ConditionTrue {
			value = 1
		}
		m.conditions.WithLabelValues(ring, c.Type, c.Reason).Set(value)
	}
	for _, state := range []State{Ready, Leaving, Expired, Uncertain, Dead, Orphaned} {
		m.shards.WithLabelValues(ring, string(state))
	}
	for _, member := range s.Members {
		m.shards.WithLabelValues(ring, member.State).Inc()
		m.slots.WithLabelValues(ring, member.Name).Set(float64(member.Slots))
	}
	if s.Table != nil {
		m.generation.WithLabelValues(ring).Set(float64(s.Table.Generation))
	}
}

// forget removes the metrics of a deleted ring.
func (m metrics) forget(ring string) {
	of := prometheus.Labels{"ring": ring}
	for _, gauge := range []*prometheus.GaugeVec{m.shards, m.slots, m.generation, m.conditions} {
		gauge.DeletePartialMatch(of)
	}
	m.computations.DeletePartialMatch(of)
}
