package history

import "github.com/prometheus/client_golang/prometheus"

var _ prometheus.Collector = (*History)(nil)

func newRestarts() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nodekeeper_watch_restarts_total",
		Help: "Watches of the API server that ended before their time and had to be begun anew.",
	})
}

// Describe describes the metric of [History.Collect].
func (h *History) Describe(ch chan<- *prometheus.Desc) { h.restarts.Describe(ch) }

// Collect tells how many watches ended before their time.
func (h *History) Collect(ch chan<- prometheus.Metric) { h.restarts.Collect(ch) }
