package rewind

import "github.com/prometheus/client_golang/prometheus"

var _ prometheus.Collector = (*Detector)(nil)

func newRestarts() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nodekeeper_watch_restarts_total",
		Help: "Watches of the API server that ended before their time and were restarted.",
	})
}

// Describe describes the metric of [Detector.Collect].
func (d *Detector) Describe(ch chan<- *prometheus.Desc) { d.restarts.Describe(ch) }

// Collect collects how many watches ended early.
func (d *Detector) Collect(ch chan<- prometheus.Metric) { d.restarts.Collect(ch) }
