package main

import (
	"fmt"

	dto "github.com/prometheus/client_model/go"
)

// answers is the time that the API server waited for webhooks, according to its histogram: the
// number of answers by the upper bound of their bucket in seconds, and the total number.
type answers struct {
	within map[float64]uint64
	count  uint64
}

// answersKept are the reported upper bounds in seconds. The API server has no buckets between them.
var answersKept = []float64{0.005, 0.025}

// answersOf returns the answers so far.
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

// since returns the answers after before.
func (a answers) since(before answers) answers {
	delta := answers{within: map[float64]uint64{}, count: a.count - before.count}
	for bound, count := range a.within {
		delta.within[bound] = count - before.within[bound]
	}
	return delta
}

// addTo reports the share of the answers within each bound.
func (a answers) addTo(r *report) {
	if a.count == 0 {
		return // there is no webhook
	}
	for _, bound := range answersKept {
		r.add(fmt.Sprintf("answers of the webhook within %g ms", 1000*bound), "%", 100*float64(a.within[bound])/float64(a.count))
	}
}
