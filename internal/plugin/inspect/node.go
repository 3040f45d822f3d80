package inspect

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Node is one node with its record and its transactions.
type Node struct {
	Name string
	// Live is the Node, nil if it is away.
	Live *nodeview.Node
	// Now is the resourceVersion of the list of Nodes when Live was read.
	Now revision.Revision
	// Saved is the record.
	Saved Saved
	// Pending has the transactions: an earlier history before this one, and each oldest first.
	Pending []Pending

	// checked is a revision of all Nodes that was read after everything else. It is zero if nothing
	// is later than Now, and so of an earlier history, see [preserve.Ahead].
	checked revision.Revision
}

// Saved is a record in the cluster. The zero value means that there is no record.
type Saved struct {
	// Record is nil if there is no record, or if it cannot be parsed.
	Record *record.Record
	// Object is its ConfigMap.
	Object *corev1.ConfigMap
	// Unreadable is the parse error of the record; it wraps [record.ErrUnreadable].
	Unreadable error
	// Floor replaces a record that was removed. All other fields are then zero.
	Floor records.Stored
}

// ParseSaved returns the record in a ConfigMap of the metadata namespace.
func ParseSaved(cm *corev1.ConfigMap) Saved { return savedIn(records.Parse(cm)) }

func savedIn(stored records.Stored) Saved {
	if stored.Record != nil && stored.Record.Floor {
		return Saved{Floor: stored}
	}
	return Saved{Record: stored.Record, Object: stored.Object, Unreadable: stored.Unreadable}
}

// Advice returns what makes an unreadable record, or another program's ConfigMap in its place,
// readable. It is empty if the record is readable.
func (s Saved) Advice() string {
	if s.Unreadable == nil {
		return ""
	}
	switch record.OwnerOf(s.Object) {
	case record.KubeStateRS:
		return "take over its labels: kubectl nodekeeper import --from kube-state-rs"
	case record.Another:
		return "move what you need of it, and delete it: kubectl delete configmap " + s.Object.Name + " -n " + s.Object.Namespace
	case record.Nodekeeper:
	}
	return "correct it, or forget the node: kubectl nodekeeper forget " + s.Object.Name
}

// Stored returns the stored form, which a write of the record replaces.
func (s Saved) Stored() records.Stored {
	if s.Floor.Object != nil {
		return s.Floor
	}
	return records.Stored{Record: s.Record, Object: s.Object, Unreadable: s.Unreadable}
}

// decisive returns the record that the decision uses, which may be a floor.
func (s Saved) decisive() *record.Record { return s.Stored().Record }

// Node reads one node. It reads the Node before the record, like a restore does, so that a restore
// between the two reads shows.
func (c *Cluster) Node(ctx context.Context, name string) (*Node, error) {
	n := &Node{Name: name}
	var err error
	if n.Pending, err = c.Queue().Of(ctx, name); err != nil {
		return nil, err
	}
	if n.Live, n.Now, err = c.NodeNamed(name).At(ctx, name); err != nil {
		return nil, err
	}
	stored, err := c.Records().Get(ctx, name)
	if err != nil {
		return nil, err
	}
	n.Saved = savedIn(stored)
	return n, c.checkAll(ctx, map[string]*Node{name: n})
}

// hasLater reports whether the record or a transaction is later than the Node that was read.
func (n *Node) hasLater() bool {
	return preserve.Ahead(n.Saved.decisive(), n.Now) || slices.ContainsFunc(n.Pending, func(p Pending) bool { return p.Revision.After(n.Now) })
}

// check sets the revision that separates the histories, which was read after everything else, and
// moves the transactions of an earlier history to the front.
func (n *Node) check(now revision.Revision) {
	n.checked = now
	n.Pending = queue.EarlierFirst(n.Pending, func(p Pending) bool { return p.Revision.After(now) })
}

// Found reports whether there is a Node of this name, or a record or transactions of it. A floor
// does not count.
func (n *Node) Found() bool { return n.Live != nil || n.Saved.Object != nil || len(n.Pending) > 0 }

// State returns the state of the node.
func (n *Node) State() State {
	live := liveNode{isThere: n.Live != nil}
	if n.Live != nil {
		live.uid, live.marker = n.Live.UID, n.Live.Marker
	}
	return stateOf(live, n.Saved)
}

// liveNodes returns the Nodes for which keep is true. If a view needs the spec, it lists whole Nodes
// in a second pass.
func (c *Cluster) liveNodes(ctx context.Context, keep func(name string) bool) (map[string]*nodeview.Node, error) {
	live, needsSpec := map[string]*nodeview.Node{}, false
	err := c.Nodes().Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		if keep(n.Name) {
			view := c.View(n.Name)
			needsSpec = needsSpec || view.Preserved.NeedsSpec()
			live[n.Name] = view.OfMetadata(n)
		}
		return nil
	})
	if err != nil || !needsSpec {
		return live, err
	}
	clear(live)
	newList := func() client.ObjectList { return &corev1.NodeList{} }
	err = pages.Each(ctx, c.Client, newList, "", func(whole *corev1.Node) error {
		if keep(whole.Name) {
			live[whole.Name] = c.View(whole.Name).OfWhole(whole, c.Now())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	return live, nil
}

// Every reads all nodes for which keep is true, by a few lists instead of three requests per node.
// It omits nodes that it finds nothing of, see [Node.Found].
func (c *Cluster) Every(ctx context.Context, keep func(name string) bool) (map[string]*Node, error) {
	found := map[string]*Node{}
	get := func(name string) *Node {
		if found[name] == nil {
			found[name] = &Node{Name: name}
		}
		return found[name]
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
	// Read the revision first: a node that is not in the list was absent at that revision, or came
	// later.
	now, err := c.Nodes().Now(ctx)
	if err != nil {
		return nil, err
	}
	live, err := c.liveNodes(ctx, keep)
	if err != nil {
		return nil, err
	}
	for name, n := range live {
		get(name).Live = n
	}
	err = c.Records().Each(ctx, func(cm *corev1.ConfigMap) error {
		if keep(cm.Name) {
			get(cm.Name).Saved = ParseSaved(cm)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, n := range found {
		n.Now = now
	}
	return found, c.complete(ctx, found)
}

// complete reads what the decisions about the pending transactions of nodes depend on.
func (c *Cluster) complete(ctx context.Context, found map[string]*Node) error {
	if err := c.checkAll(ctx, found); err != nil {
		return err
	}
	for _, n := range found {
		if err := c.identify(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// identify reads the identity of a Node's machine if a pending decision may depend on it.
func (c *Cluster) identify(ctx context.Context, n *Node) error {
	if len(n.Pending) == 0 || n.Live == nil || n.Live.IsWhole ||
		!preserve.NeedsIdentity([]txn.Transaction{txn.Of(txn.Added, n.Live)}, n.Saved.decisive(), c.View(n.Name).MachineBound) {
		return nil
	}
	live, _, err := c.NodeNamed(n.Name).At(ctx, n.Name)
	if live != nil && live.UID == n.Live.UID {
		with := *n.Live // the labels must be those from before the records were read
		with.IsWhole, with.Identity, with.Settled = true, live.Identity, live.Settled
		n.Live = &with
	}
	return err
}

// checkAll reads the revision of all Nodes again if any node needs it, see [Node.check].
func (c *Cluster) checkAll(ctx context.Context, all map[string]*Node) error {
	var later []*Node
	for _, n := range all {
		if n.hasLater() {
			later = append(later, n)
		}
	}
	if len(later) == 0 {
		return nil
	}
	now, err := c.Nodes().Now(ctx)
	if err != nil {
		return err
	}
	for _, n := range later {
		n.check(now)
	}
	return nil
}
