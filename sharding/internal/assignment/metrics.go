package assignment

import (
	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/sharding/internal/handover"
)

// metrics are the metrics of all rings.
type metrics struct {
	assignments, moves, drains, conflicts, left *prometheus.CounterVec
	unassigned, oldest, late, failing           *prometheus.GaugeVec
	resyncs, handovers                          *prometheus.HistogramVec
}

func newMetrics() metrics {
	const ring, group, resource = "ring", "group", "resource"
	of := []string{ring, group, resource}
	return metrics{
		assignments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sharder_assignments_total", Help: "Objects without a shard that were assigned to one, by watch (the sharder has observed the object) or by webhook (an answer to the API server, which can still reject the object). Assignments by a policy are not counted.",
		}, append(of, "by")),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sharder_moves_total", Help: "Objects that the sharder has assigned to another shard, by reason: dead, released or forced; children for children. Hand-overs that the shard or a policy completes are not counted.",
		}, append(of, "why")),
		drains: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sharder_drains_total", Help: "Objects that a live shard was asked to release.",
		}, of),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sharder_patch_conflicts_total", Help: "Writes that failed because the object had changed or was gone.",
		}, []string{ring}),
		unassigned: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_unassigned_objects", Help: "Main objects that wait for an assignment.",
		}, []string{ring}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_failing_objects", Help: "Objects whose last write has failed, for example because an admission policy or a schema refuses it. Lost races are not counted.",
		}, []string{ring}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_oldest_drain_seconds", Help: "Age of the oldest drain, as observed by the sharder.",
		}, []string{ring}),
		late: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sharder_late_drains", Help: "Objects that their shard has not released within spec.handover.drainTimeout.",
		}, []string{ring}),
		left: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sharder_left_objects_total", Help: "Main objects that leaving shards had not handed over when they ended.",
		}, []string{ring}),
		resyncs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sharder_sync_seconds", Help: "Duration of resyncs of all objects of a ring.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}, []string{ring}),
		handovers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sharder_drain_seconds", Help: "Duration of drains as observed by the sharder, until the object was at another shard or the drain was canceled.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}, []string{ring}),
	}
}

// begin initializes the counters of a ring to zero.
func (m metrics) begin(ring string) {
	m.conflicts.WithLabelValues(ring)
	m.left.WithLabelValues(ring)
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.assignments, m.moves, m.drains, m.left, m.conflicts, m.unassigned, m.failing, m.oldest, m.late, m.resyncs, m.handovers}
}

// assigned counts a first assignment.
func (m metrics) assigned(t *tracker) {
	m.assignments.WithLabelValues(t.of.name, t.resource.Group, t.resource.Resource, "watch").Inc()
}

// moved counts a move.
func (m metrics) moved(t *tracker, why handover.Why) {
	m.moves.WithLabelValues(t.of.name, t.resource.Group, t.resource.Resource, string(why)).Inc()
}

// followed counts a child that was assigned to the shard of its main object.
func (m metrics) followed(t *tracker) { m.moved(t, "children") }

// forget removes the metrics of a deleted ring.
func (m metrics) forget(ring string) {
	of := prometheus.Labels{"ring": ring}
	for _, counter := range []*prometheus.CounterVec{m.assignments, m.moves, m.drains, m.left, m.conflicts} {
		counter.DeletePartialMatch(of)
	}
	for _, gauge := range []*prometheus.GaugeVec{m.unassigned, m.oldest, m.late, m.failing} {
		gauge.DeletePartialMatch(of)
	}
	m.resyncs.DeletePartialMatch(of)
	m.handovers.DeletePartialMatch(of)
}
