package inspect

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/pages"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Node is all that there is of one node.
type Node struct {
	Name string
	// Live is the metadata of the Node, nil if there is none.
	Live *metav1.PartialObjectMetadata
	// Now is the resourceVersion of all Nodes when Live was read.
	Now string
	// Saved is its record.
	Saved Saved
	// Pending are its transactions, oldest first.
	Pending []Pending
}

// Saved is a record as it stands in the cluster. The zero value: there is none.
type Saved struct {
	// Record is nil if there is none, or none that can be read.
	Record *record.Record
	// Object is its ConfigMap.
	Object *corev1.ConfigMap
	// Unreadable says why the record cannot be read; it wraps [record.ErrUnreadable].
	Unreadable error
}

// ParseSaved returns the record in a ConfigMap of the metadata namespace.
func ParseSaved(cm *corev1.ConfigMap) Saved {
	r, err := record.Parse(cm)
	return Saved{Record: r, Object: cm, Unreadable: err}
}

// Node reads all that there is of one node. The Node is read before its record, as for a restore: a restore that is done between the two shows.
func (c *Cluster) Node(ctx context.Context, name string) (*Node, error) {
	n := &Node{Name: name}
	var err error
	if n.Pending, err = c.PendingOf(ctx, name); err != nil {
		return nil, err
	}
	if n.Live, n.Now, err = c.Live(ctx, name); err != nil {
		return nil, err
	}
	n.Saved, err = c.Saved(ctx, name)
	return n, err
}

// PendingOf returns the transactions of one node, oldest first.
func (c *Cluster) PendingOf(ctx context.Context, name string) ([]Pending, error) {
	var list corev1.ConfigMapList
	err := c.Client.List(ctx, &list, client.InNamespace(c.TransactionNamespace), client.MatchingLabels(txn.NodeLabels(name)))
	if err != nil {
		return nil, fmt.Errorf("listing the transactions of node %q: %w", name, err)
	}
	var pending []Pending
	for i := range list.Items {
		p, err := ParsePending(&list.Items[i])
		if err != nil || p.Node != name {
			continue // it blocks nobody; or the hash of another node begins alike
		}
		pending = append(pending, p)
	}
	sortPending(pending)
	return pending, nil
}

// Live returns the metadata of a Node, nil if there is none, and the resourceVersion of all Nodes then.
func (c *Cluster) Live(ctx context.Context, name string) (live *metav1.PartialObjectMetadata, now string, err error) {
	// A list and not a get: it tells the resourceVersion even if the Node is gone.
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := c.Client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		return nil, "", fmt.Errorf("reading node %q: %w", name, err)
	}
	if len(list.Items) > 0 {
		live = &list.Items[0]
	}
	return live, list.ResourceVersion, nil
}

// Saved returns the record of a node.
func (c *Cluster) Saved(ctx context.Context, name string) (Saved, error) {
	cm := &corev1.ConfigMap{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.MetadataNamespace, Name: name}, cm)
	if apierrors.IsNotFound(err) || err == nil && name == record.RootCAName {
		return Saved{}, nil // the node has no saved labels
	}
	if err != nil {
		return Saved{}, fmt.Errorf("reading the record of node %q: %w", name, err)
	}
	return ParseSaved(cm), nil
}

// IsKnown says whether there is anything of that name.
func (n *Node) IsKnown() bool { return n.Live != nil || n.Saved.Object != nil || len(n.Pending) > 0 }

// State returns the state of the node.
func (n *Node) State() State {
	live := liveNode{isThere: n.Live != nil}
	if n.Live != nil {
		live.uid, live.marker = n.Live.UID, n.Live.Labels[labels.Marker]
	}
	return stateOf(live, n.Saved)
}

// Forecast says what the pending transactions will do, and then those in more, as [Forecast] does. It says nothing if the record cannot be
// read: they wait.
func (n *Node) Forecast(policy labels.Policy, more ...txn.Transaction) []preserve.Decision {
	if n.Saved.Unreadable != nil {
		return nil
	}
	transactions := make([]txn.Transaction, 0, len(n.Pending)+len(more))
	for _, p := range n.Pending {
		transactions = append(transactions, p.Transaction)
	}
	var live *preserve.Node
	if n.Live != nil {
		live = preserve.NodeOf(n.Live)
	}
	return Forecast(append(transactions, more...), n.Saved.Record, live, n.Now, policy)
}

// Nodes reads all that there is of every node whose name is kept, by a few lists and not by three requests for each. A node that there is
// nothing of is not in the result.
func (c *Cluster) Nodes(ctx context.Context, keep func(name string) bool) (map[string]*Node, error) {
	nodes := map[string]*Node{}
	get := func(name string) *Node {
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name}
		}
		return nodes[name]
	}
	pending, _, err := c.Transactions(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pending {
		if keep(p.Node) {
			get(p.Node).Pending = append(get(p.Node).Pending, p)
		}
	}
	err = pages.Each(ctx, c.Client, pages.Metadata("Node"), "", func(n *metav1.PartialObjectMetadata) error {
		if keep(n.Name) {
			get(n.Name).Live = n
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	err = c.EachRecord(ctx, func(cm *corev1.ConfigMap) error {
		if keep(cm.Name) {
			get(cm.Name).Saved = ParseSaved(cm)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	now, err := c.Now(ctx)
	for _, n := range nodes {
		n.Now = now
	}
	return nodes, err
}

// Now returns the resourceVersion of all Nodes.
func (c *Cluster) Now(ctx context.Context) (string, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := c.Client.List(ctx, list, client.Limit(1)); err != nil {
		return "", fmt.Errorf("reading the resourceVersion of the nodes: %w", err)
	}
	return list.ResourceVersion, nil
}
