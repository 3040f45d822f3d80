package protection

import (
	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/internal/nodes"
)

// waiting counts the Nodes whose deletion waits, from the cache.
type waiting struct {
	nodes nodes.Cache
	desc  *prometheus.Desc
}

var _ prometheus.Collector = (*waiting)(nil)

func newWaiting(all nodes.Cache) *waiting {
	return &waiting{nodes: all, desc: prometheus.NewDesc("nodekeeper_deletions_waiting",
		"Nodes that are deleted and stay until their last labels are saved. Only with --protect=finalizer.", nil, nil)}
}

// Describe describes the metric of Collect.
func (w *waiting) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

// Collect counts the Nodes. It omits the metric until they are listed.
func (w *waiting) Collect(ch chan<- prometheus.Metric) {
	all, err := w.nodes.All()
	if err != nil {
		return
	}
	count := 0
	for n := range all {
		if nodes.WaitsForFinalizer(n) {
			count++
		}
	}
	ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(count))
}
