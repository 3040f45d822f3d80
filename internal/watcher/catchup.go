package watcher

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/pages"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// CatchUp returns what is to be recorded of a node that was there when the
// watcher started: its events are not known, so the node is compared with its record, nil
// if it has none that can be read. A node that has its labels gives nothing, so
// that a restart of every watcher on a quiet cluster records nothing. hasPending says whether there are transactions
// of the node that are not applied: these may be going to replace what the record has, even if it agrees with the node now.
func (o Observer) CatchUp(n *metav1.PartialObjectMetadata, r *record.Record, hasPending bool, now time.Time) []txn.Transaction {
	own, marker := labels.Split(n.Labels)
	switch {
	case r == nil || !preserve.Owned(*r, n.UID, marker):
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case o.RecordUpdates && (hasPending || !maps.Equal(own, r.Labels)):
		return []txn.Transaction{o.transaction(txn.Updated, n, now)}
	}
	return nil
}

// catchUpAll compares every node in initial with its record. The records are read last: one that agrees with a node
// which it was read after, and no transaction is left that was there before, has all that the node shows.
func (w *Watcher) catchUpAll(ctx context.Context, initial map[string]*metav1.PartialObjectMetadata) (map[string][]txn.Transaction, error) {
	now := time.Now()
	hasPending, err := w.nodesWithTransactions(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]txn.Transaction)
	compared := make(map[string]bool, len(initial))
	err = w.eachRecord(ctx, func(cm *corev1.ConfigMap) error {
		n, ok := initial[cm.Name]
		if !ok {
			return nil
		}
		r, err := record.Parse(cm)
		if err != nil {
			return nil //nolint:nilerr // as if there were none: the processor that gets the transaction reports it
		}
		compared[cm.Name] = true
		found[cm.Name] = w.observer.CatchUp(n, r, hasPending[txn.NodeHash(n.Name)], now)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, n := range initial {
		if !compared[name] {
			found[name] = w.observer.CatchUp(n, nil, false, now)
		}
	}
	return found, nil
}

// nodesWithTransactions returns the hashes of the nodes that have transactions which are not applied.
func (w *Watcher) nodesWithTransactions(ctx context.Context) (map[string]bool, error) {
	hashes := map[string]bool{}
	err := pages.Each(ctx, w.client, pages.Metadata("ConfigMap"), w.queue.Namespace, func(cm *metav1.PartialObjectMetadata) error {
		if hash, _, ok := txn.SplitName(cm.Name); ok {
			hashes[hash] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the transactions in namespace %q: %w", w.queue.Namespace, err)
	}
	return hashes, nil
}

// eachRecord calls do with the ConfigMaps in the metadata namespace.
func (w *Watcher) eachRecord(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	err := pages.Each(ctx, w.client, func() client.ObjectList { return &corev1.ConfigMapList{} }, w.metadataNamespace, do)
	if err != nil {
		return fmt.Errorf("listing the records in namespace %q: %w", w.metadataNamespace, err)
	}
	return nil
}
