package processor

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// stockTimeout bounds the wait for the cache to sync. Metrics with unknown values are omitted.
const stockTimeout = time.Second

// stock computes metrics from the cache when they are collected. It copies no objects, and parses
// each version of a record once.
type stock struct {
	processor *Processor

	pending, oldest, malformed, records, unreadable, waiting *prometheus.Desc

	mu sync.Mutex
	// contents maps the ConfigMaps of the last collection to their content.
	contents map[version]content
}

// content classifies the ConfigMaps of the metadata namespace.
type content int

const (
	unreadable content = iota
	floor
	nodeLabels
	waitingLabels // some labels wait until the Node reports its machine
)

// version identifies one version of an object.
type version struct {
	uid             types.UID
	resourceVersion string
}

var _ prometheus.Collector = (*stock)(nil)

func newStock(p *Processor) *stock {
	desc := func(name, help string, keys ...string) *prometheus.Desc {
		return prometheus.NewDesc("nodekeeper_"+name, help, keys, nil)
	}
	return &stock{
		processor: p,
		pending:   desc("transactions_pending", "Transactions in the queue, of all nodes, by type. Every processor exports the same value.", "type"),
		oldest: desc("oldest_pending_transaction_age_seconds",
			"Seconds since the oldest transaction in the queue was created, by the API server's clock and this processor's; 0 if there is none. Every processor exports the same value."),
		malformed:  desc("malformed_transactions", "ConfigMaps in the transaction namespace that were meant as transactions and cannot be read."),
		records:    desc("records", "Nodes whose labels are saved. Every processor exports the same value."),
		unreadable: desc("unreadable_records", "Records that cannot be read. Their nodes wait."),
		waiting: desc("restores_waiting_for_identity",
			"Nodes whose labels of a machine wait until they report which machine they are. Every processor exports the same value."),
	}
}

// Describe describes the metrics of Collect.
func (s *stock) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{s.pending, s.oldest, s.malformed, s.records, s.unreadable, s.waiting} {
		ch <- desc
	}
}

// Collect computes the metrics.
func (s *stock) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), stockTimeout)
	defer cancel()
	s.collectTransactions(ch)
	s.collectRecords(ctx, ch)
}

func (s *stock) collectTransactions(ch chan<- prometheus.Metric) {
	if !s.processor.Index.Synced() {
		return
	}
	stock := s.processor.Index.Stock()
	for _, typ := range txn.Types() {
		ch <- gauge(s.pending, float64(stock.Pending[typ]), string(typ))
	}
	age := time.Duration(0)
	if !stock.Oldest.IsZero() {
		age = time.Since(stock.Oldest)
	}
	ch <- gauge(s.oldest, age.Seconds())
	ch <- gauge(s.malformed, float64(stock.Malformed))
}

func (s *stock) collectRecords(ctx context.Context, ch chan<- prometheus.Metric) {
	var all []*corev1.ConfigMap
	if s.processor.Records.EachCached(ctx, func(cm *corev1.ConfigMap) { all = append(all, cm) }) != nil {
		return
	}
	counts := s.countRecords(all)
	ch <- gauge(s.records, float64(counts[nodeLabels]+counts[waitingLabels]))
	ch <- gauge(s.unreadable, float64(counts[unreadable]))
	ch <- gauge(s.waiting, float64(counts[waitingLabels]))
}

// countRecords counts records by content. It parses only records that have changed since the last
// collection: parsing thousands of them takes most of a second.
func (s *stock) countRecords(all []*corev1.ConfigMap) map[content]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	contents := make(map[version]content, len(all))
	counts := map[content]int{}
	for _, cm := range all {
		v := version{cm.UID, cm.ResourceVersion}
		c, ok := s.contents[v]
		if !ok {
			c = contentOf(cm)
		}
		contents[v] = c
		counts[c]++
	}
	s.contents = contents
	return counts
}

func contentOf(cm *corev1.ConfigMap) content {
	r, err := record.Parse(cm)
	switch {
	case err != nil:
		return unreadable
	case r.Floor:
		return floor // no labels are saved for the node
	}
	if _, isWaiting := preserve.Recheck(*r); isWaiting {
		return waitingLabels
	}
	return nodeLabels
}

func gauge(desc *prometheus.Desc, value float64, labelValues ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labelValues...)
}
