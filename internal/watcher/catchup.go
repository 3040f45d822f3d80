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

// CatchUp returns the transactions for a node that existed when the watcher started. Its events are
// unknown, so the node is compared with its record, nil if it has no readable one. A node that has
// its labels needs none, so restarting every watcher of a quiet cluster records nothing, unless the
// record lacks the machine that its labels belong to, like those of former releases. hasPending
// reports whether the node has pending transactions: these may be about to replace the labels in
// the record, even if they match the node now.
func (o Observer) CatchUp(n *nodeview.Node, r *record.Record, hasPending bool, now time.Time) []txn.Transaction {
	switch {
	case n.Unselected:
		return nil
	case r == nil || !preserve.Owned(*r, n.UID, ""): // its marker alone does not suffice: only this transaction makes a processor note a Node that was admitted with it
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case n.Marker == labels.Pending:
		// A processor must remove the startup taint.
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case !hasPending && preserve.IdentityOwed(*r, n.UID, o.MachineBound):
		// A processor must read the machine's identity.
		return []txn.Transaction{o.transaction(txn.Added, n, now)}
	case o.RecordUpdates && (hasPending || !maps.Equal(n.Labels, r.Labels)):
		return []txn.Transaction{o.transaction(txn.Updated, n, now)}
	}
	return nil
}

// catchUp compares existing nodes with their records at the start.
type catchUp struct {
	observer     Observer
	transactions *queue.Queue
	records      *records.Records
}

// All compares every given node with its record, and returns transactions with the times at which
// the nodes were observed. The records are read last: if a record that was read after a node
// matches it, and no earlier transaction is pending, the record includes the node's state.
func (c *catchUp) All(ctx context.Context, listed map[string]listedNode) (map[string][]txn.Transaction, error) {
	hasPending, err := c.nodesWithTransactions(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]txn.Transaction)
	compared := make(map[string]bool, len(listed))
	err = c.records.Each(ctx, func(cm *corev1.ConfigMap) error {
		d, ok := listed[cm.Name]
		if !ok {
			return nil
		}
		r, err := record.Parse(cm)
		if err != nil {
			return nil //nolint:nilerr // as if it did not exist: the processor that gets the transaction reports it
		}
		compared[cm.Name] = true
		found[cm.Name] = c.observer.CatchUp(d.node, r, hasPending[txn.NodeHash(cm.Name)], d.at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, d := range listed {
		if !compared[name] {
			found[name] = c.observer.CatchUp(d.node, nil, false, d.at)
		}
	}
	return found, nil
}

// nodesWithTransactions returns the hashes of the nodes with pending transactions.
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
