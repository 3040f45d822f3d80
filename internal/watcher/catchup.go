package watcher

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// CatchUp returns what is to be recorded of a node that was there when the
// watcher started: its events are not known, so the node is compared with its record, nil
// if it has none that can be read. A node that has its labels gives nothing, so
// that a restart of every watcher on a quiet cluster records nothing.
func (o Observer) CatchUp(n *metav1.PartialObjectMetadata, r *record.Record, now time.Time) []txn.Transaction {
	own, marker := labels.Split(n.Labels)
	switch {
	case r == nil || !preserve.Owned(*r, n.UID, marker):
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case o.RecordUpdates && !maps.Equal(own, r.Labels):
		return []txn.Transaction{o.transaction(txn.Updated, n, now)}
	}
	return nil
}

// catchUpAll compares every node in initial with its record. The records are read after the
// nodes were: a record that agrees with a node it was read after has all that the node shows.
func (w *Watcher) catchUpAll(ctx context.Context, initial map[string]*metav1.PartialObjectMetadata) (map[string][]txn.Transaction, error) {
	now := time.Now()
	found := make(map[string][]txn.Transaction)
	compared := make(map[string]bool, len(initial))
	err := w.eachRecord(ctx, func(cm *corev1.ConfigMap) error {
		n, ok := initial[cm.Name]
		if !ok {
			return nil
		}
		r, err := record.Parse(cm)
		if err != nil {
			return nil //nolint:nilerr // as if there were none: the processor that gets the transaction reports it
		}
		compared[cm.Name] = true
		found[cm.Name] = w.observer.CatchUp(n, r, now)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, n := range initial {
		if !compared[name] {
			found[name] = w.observer.CatchUp(n, nil, now)
		}
	}
	return found, nil
}

// eachRecord calls do with the ConfigMaps in the metadata namespace, read page by page.
func (w *Watcher) eachRecord(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		var list corev1.ConfigMapList
		err := w.client.List(ctx, &list, &client.ListOptions{
			Namespace: w.metadataNamespace, Limit: opts.Limit, Continue: opts.Continue, Raw: &opts,
		})
		return &list, err
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return fmt.Errorf("a list of ConfigMaps holds a %T", obj)
		}
		return do(cm)
	})
	if err != nil {
		return fmt.Errorf("listing the records in namespace %q: %w", w.metadataNamespace, err)
	}
	return nil
}
