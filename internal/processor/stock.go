package processor

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// stockTimeout is for a cache that is not synced. What is not known is left out, rather than told wrong.
const stockTimeout = time.Second

// stock tells by metrics what there is in the cache, counted when it is asked. Nothing is copied for it, and a record is parsed once.
type stock struct {
	processor *Processor

	pending, oldest, malformed, records, unreadable, waiting *prometheus.Desc

	mu sync.Mutex
	// readable says of each record at the last count whether it can be read.
	readable map[version]bool
}

// version is one state of one object.
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
		pending:   desc("transactions_pending", "Transactions in the queue, of all nodes, by type. Every processor tells the same.", "type"),
		oldest: desc("oldest_pending_transaction_age_seconds",
			"Seconds since the oldest transaction in the queue was created, by the API server's clock and this processor's; 0 if there is none. Every processor tells the same."),
		malformed:  desc("malformed_transactions", "ConfigMaps in the transaction namespace that are no readable transactions."),
		records:    desc("records", "Nodes whose labels are saved. Every processor tells the same."),
		unreadable: desc("unreadable_records", "ConfigMaps in the metadata namespace that are no readable records. A node of that name waits."),
		waiting: desc("deletions_waiting",
			"Nodes that are deleted and stay until their last labels are saved. Only with --protect=finalizer."),
	}
}

// Describe describes the metrics of Collect.
func (s *stock) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{s.pending, s.oldest, s.malformed, s.records, s.unreadable} {
		ch <- desc
	}
	if s.processor.isProtecting {
		ch <- s.waiting
	}
}

// Collect counts.
func (s *stock) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), stockTimeout)
	defer cancel()
	s.collectTransactions(ctx, ch)
	s.collectRecords(ctx, ch)
	s.collectNodes(ctx, ch)
}

func (s *stock) collectTransactions(ctx context.Context, ch chan<- prometheus.Metric) {
	var list corev1.ConfigMapList
	if s.list(ctx, &list, s.processor.transactionNamespace) != nil {
		return
	}
	pending, malformed := map[txn.Type]int{}, 0
	var age time.Duration
	for i := range list.Items {
		cm := &list.Items[i]
		if isMarked(cm) {
			malformed++
		}
		if _, _, ok := txn.SplitName(cm.Name); !ok || isMarked(cm) {
			continue
		}
		pending[txn.Type(cm.Data[labels.TypeKey])]++ // not parsed: what is no transaction is marked in no time
		age = max(age, time.Since(cm.CreationTimestamp.Time))
	}
	for _, typ := range txn.Types() {
		ch <- gauge(s.pending, float64(pending[typ]), string(typ))
	}
	ch <- gauge(s.oldest, age.Seconds())
	ch <- gauge(s.malformed, float64(malformed))
}

func (s *stock) collectRecords(ctx context.Context, ch chan<- prometheus.Metric) {
	var list corev1.ConfigMapList
	if s.list(ctx, &list, s.processor.records.namespace) != nil {
		return
	}
	readable, unreadable := s.countRecords(list.Items)
	ch <- gauge(s.records, float64(readable))
	ch <- gauge(s.unreadable, float64(unreadable))
}

// countRecords parses only those that it has not seen in this version: to parse thousands of them takes most of a second.
func (s *stock) countRecords(all []corev1.ConfigMap) (readable, unreadable int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := make(map[version]bool, len(all))
	for i := range all {
		cm := &all[i]
		if cm.Name == record.RootCAName {
			continue // not ours
		}
		v := version{cm.UID, cm.ResourceVersion}
		isReadable, ok := s.readable[v]
		if !ok {
			_, err := record.Parse(cm)
			isReadable = err == nil
		}
		known[v] = isReadable
		if isReadable {
			readable++
		} else {
			unreadable++
		}
	}
	s.readable = known
	return readable, unreadable
}

// collectNodes asks for Nodes only where they are in the cache already.
func (s *stock) collectNodes(ctx context.Context, ch chan<- prometheus.Metric) {
	if !s.processor.isProtecting {
		return
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if s.list(ctx, &list, "") != nil {
		return
	}
	waiting := 0
	for i := range list.Items {
		if waitsForFinalizer(&list.Items[i]) {
			waiting++
		}
	}
	ch <- gauge(s.waiting, float64(waiting))
}

// list lists what is in the cache without copying it: it is not to be changed.
func (s *stock) list(ctx context.Context, list client.ObjectList, namespace string) error {
	return s.processor.records.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
}

func gauge(desc *prometheus.Desc, value float64, labelValues ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labelValues...)
}
