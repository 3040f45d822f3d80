package watcher

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// CatchUp returns what is to be recorded of a node that was there when the watcher started: its
// events are not known, so the node is compared with its record, nil if it has none that can be
// read. A node that has its labels gives nothing, so that a restart of every watcher on a quiet
// cluster records nothing, unless the record does not say which machine its restricted labels came
// from, as that of a former release. hasPending says whether there are transactions of the node that are not
// applied: these may be going to replace what the record has, even if it agrees with the node now.
func (o Observer) CatchUp(n *metav1.PartialObjectMetadata, r *record.Record, hasPending bool, now time.Time) []txn.Transaction {
	own, marker := labels.Split(n.Labels)
	switch {
	case !nodeview.Selected(n):
		return nil
	case r == nil || !preserve.Owned(*r, n.UID, ""): // nor by its marker alone: nobody else may note a Node that was admitted with it
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case marker == labels.Pending:
		// Somebody must open the gate.
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case !hasPending && preserve.IdentityOwed(*r, n.UID):
		// Somebody must find out which machine the node is.
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case o.RecordUpdates && (hasPending || !maps.Equal(own, r.Labels)):
		return []txn.Transaction{o.transaction(txn.Updated, n, now)}
	}
	return nil
}

// catchUp compares the nodes that are there at the start with their records.
type catchUp struct {
	observer     Observer
	transactions *queue.Queue
	records      *records.Records
}

// All compares every node in doubts with its record, and returns transactions of when the node was
// observed. The records are read last: one that agrees with a node which it was read after, and no
// transaction is left that was there before, has all that the node shows.
func (c *catchUp) All(ctx context.Context, doubts map[string]doubt) (map[string][]txn.Transaction, error) {
	hasPending, err := c.nodesWithTransactions(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]txn.Transaction)
	compared := make(map[string]bool, len(doubts))
	err = c.records.Each(ctx, func(cm *corev1.ConfigMap) error {
		d, ok := doubts[cm.Name]
		if !ok {
			return nil
		}
		r, err := record.Parse(cm)
		if err != nil {
			return nil //nolint:nilerr // as if there were none: the processor that gets the transaction reports it
		}
		compared[cm.Name] = true
		found[cm.Name] = c.observer.CatchUp(d.node, r, hasPending[txn.NodeHash(cm.Name)], d.at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, d := range doubts {
		if !compared[name] {
			found[name] = c.observer.CatchUp(d.node, nil, false, d.at)
		}
	}
	return found, nil
}

// nodesWithTransactions returns the hashes of the nodes that have transactions which are not
// applied.
func (c *catchUp) nodesWithTransactions(ctx context.Context) (map[string]bool, error) {
	hashes := map[string]bool{}
	err := c.transactions.EachName(ctx, func(cm *metav1.PartialObjectMetadata) error {
		if hash, _, ok := txn.SplitName(cm.Name); ok {
			hashes[hash] = true
		}
		return nil
	})
	return hashes, err
}
