package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/pages"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Cluster reads what nodekeeper has in a cluster. It is safe for concurrent use.
type Cluster struct {
	// Client reads the API server itself, not a cache.
	Client client.Reader
	// TransactionNamespace and MetadataNamespace are where transactions and records are.
	TransactionNamespace, MetadataNamespace string
}

// Pending is a transaction in the queue.
type Pending struct {
	txn.Queued
	// Created is when it was stored, by the clock of the API server.
	Created time.Time
}

// Malformed is a ConfigMap in the transaction namespace that is no transaction.
type Malformed struct {
	// Object is that ConfigMap.
	Object *corev1.ConfigMap
	// Reason says what is wrong with it; it wraps [txn.ErrMalformed].
	Reason error
}

// Transactions returns what is in the queues of all nodes: the node that waits longest first, its transactions in order.
func (c *Cluster) Transactions(ctx context.Context) ([]Pending, []Malformed, error) {
	var pending []Pending
	var malformed []Malformed
	err := c.eachConfigMap(ctx, c.TransactionNamespace, func(cm *corev1.ConfigMap) error {
		if p, reason := ParsePending(cm); reason != nil {
			malformed = append(malformed, Malformed{Object: cm, Reason: reason})
		} else {
			pending = append(pending, p)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the transactions in namespace %q: %w", c.TransactionNamespace, err)
	}
	sortPending(pending)
	return pending, malformed, nil
}

// ParsePending returns the transaction that a ConfigMap of the transaction namespace holds, or an error that wraps [txn.ErrMalformed].
func ParsePending(cm *corev1.ConfigMap) (Pending, error) {
	t, err := txn.Parse(cm)
	if err != nil {
		return Pending{}, err
	}
	return Pending{Queued: txn.Queued{Transaction: t, ObjectUID: cm.UID}, Created: cm.CreationTimestamp.Time}, nil
}

// sortPending puts the transactions of a node in their order, and the nodes with the one that waits longest first.
func sortPending(pending []Pending) {
	oldest := map[string]time.Time{}
	for _, p := range pending {
		if since, ok := oldest[p.Node]; !ok || p.Created.Before(since) {
			oldest[p.Node] = p.Created
		}
	}
	slices.SortFunc(pending, func(a, b Pending) int {
		return cmp.Or(oldest[a.Node].Compare(oldest[b.Node]), cmp.Compare(a.Node, b.Node), txn.Compare(a.Transaction, b.Transaction))
	})
}

// EachRecord calls do with the ConfigMap of every record, in the order of their names, and stops at the first error.
func (c *Cluster) EachRecord(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	if err := c.eachConfigMap(ctx, c.MetadataNamespace, do); err != nil {
		return fmt.Errorf("listing the records in namespace %q: %w", c.MetadataNamespace, err)
	}
	return nil
}

// eachConfigMap leaves out the one that is in every namespace.
func (c *Cluster) eachConfigMap(ctx context.Context, namespace string, do func(*corev1.ConfigMap) error) error {
	return pages.Each(ctx, c.Client, func() client.ObjectList { return &corev1.ConfigMapList{} }, namespace, func(cm *corev1.ConfigMap) error {
		if cm.Name == record.RootCAName {
			return nil
		}
		return do(cm)
	})
}

// leases returns the Leases in a namespace: in that of the transactions the locks of nodes, in that of the records the places on the rings.
func (c *Cluster) leases(ctx context.Context, namespace string) ([]*coordinationv1.Lease, error) {
	var leases []*coordinationv1.Lease
	err := pages.Each(ctx, c.Client, func() client.ObjectList { return &coordinationv1.LeaseList{} }, namespace,
		func(l *coordinationv1.Lease) error {
			leases = append(leases, l)
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("listing the leases in namespace %q: %w", namespace, err)
	}
	return leases, nil
}
