package main

import (
	"fmt"

	dto "github.com/prometheus/client_model/go"
)

// answers is how long the API server waited for webhooks, as far as its histogram tells: how many answers came within some seconds, by the
// upper bound of the bucket, and how many there were.
type answers struct {
	within map[float64]uint64
	count  uint64
}

// answersKept are the upper bounds that are reported, in seconds. The API server has no bucket between them.
var answersKept = []float64{0.005, 0.025}

// answersOf returns how many answers there were.
func answersOf(families map[string]*dto.MetricFamily) answers {
	all := answers{within: map[float64]uint64{}}
	for _, metric := range families["apiserver_admission_webhook_admission_duration_seconds"].GetMetric() {
		all.count += metric.GetHistogram().GetSampleCount()
		for _, bucket := range metric.GetHistogram().GetBucket() {
			all.within[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	return all
}

// since returns what came after before.
func (a answers) since(before answers) answers {
	delta := answers{within: map[float64]uint64{}, count: a.count - before.count}
	for bound, count := range a.within {
		delta.within[bound] = count - before.within[bound]
	}
	return delta
}

// addTo reports which share of the answers came within each bound.
func (a answers) addTo(r *report) {
	if a.count == 0 {
		return // there is no webhook
	}
	for _, bound := range answersKept {
		r.add(fmt.Sprintf("answers of the webhook within %g ms", 1000*bound), "%", 100*float64(a.within[bound])/float64(a.count))
	}
}
