package protection

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/nodes"
)

// cacheTimeout bounds the wait for the cache to sync. After it the metric is omitted.
const cacheTimeout = time.Second

// waiting counts the Nodes whose deletion waits, from the cache.
type waiting struct {
	cache client.Reader
	desc  *prometheus.Desc
}

var _ prometheus.Collector = (*waiting)(nil)

func newWaiting(cache client.Reader) *waiting {
	return &waiting{cache: cache, desc: prometheus.NewDesc("nodekeeper_deletions_waiting",
		"Nodes that are deleted and stay until their last labels are saved. Only with --protect=finalizer.", nil, nil)}
}

// Describe describes the metric of Collect.
func (w *waiting) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

// Collect counts the Nodes.
func (w *waiting) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return
	}
	count := 0
	for i := range list.Items {
		if nodes.WaitsForFinalizer(&list.Items[i]) {
			count++
		}
	}
	ch <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(count))
}
