package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// Cluster reads nodekeeper's objects in a cluster. It is safe for concurrent use.
type Cluster struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	// TransactionNamespace has the transactions, MetadataNamespace the records, and
	// MembershipNamespace the Leases of the replicas.
	TransactionNamespace, MetadataNamespace, MembershipNamespace string
	// ViewOf returns the view of a Node. If it is nil, every label counts, and all are set by
	// users.
	ViewOf func(node string) nodeview.View
	// Clock converts a local time to that of the cluster. Nil means that the clocks agree.
	Clock func(time.Time) time.Time
}

// Now returns the current time of the cluster.
func (c *Cluster) Now() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock(time.Now())
}

// Nodes returns the door to all Nodes, without views.
func (c *Cluster) Nodes() *nodes.Nodes { return &nodes.Nodes{Client: c.Client} }

// View returns the view of a Node.
func (c *Cluster) View(node string) nodeview.View {
	if c.ViewOf == nil {
		return nodeview.View{}
	}
	return c.ViewOf(node)
}

// NodeNamed returns the door to one Node, which applies its view.
func (c *Cluster) NodeNamed(name string) *nodes.Nodes {
	return &nodes.Nodes{Client: c.Client, View: c.View(name), Clock: c.Clock}
}

// Records returns the door to the records.
func (c *Cluster) Records() *records.Records {
	return &records.Records{Client: c.Client, Namespace: c.MetadataNamespace}
}

// Queue returns the door to the transactions of all nodes.
func (c *Cluster) Queue() *queue.Queue {
	return &queue.Queue{Client: c.Client, Namespace: c.TransactionNamespace}
}

// Pending is a transaction in the queue.
type Pending = queue.Queued

// Malformed is a ConfigMap of nodekeeper in the transaction namespace that is not a transaction.
type Malformed struct {
	// Object is that ConfigMap.
	Object *corev1.ConfigMap
	// Reason is the parse error; it wraps [txn.ErrMalformed].
	Reason error
}

// Node returns the name of the node in its labels. It is empty if that is not a valid name, or if
// the name of the ConfigMap belongs to another node.
func (m Malformed) Node() string {
	node := txn.NodeOf(m.Object)
	hash, _, isNamed := txn.SplitName(m.Object.Name)
	if len(apivalidation.NameIsDNSSubdomain(node, false)) > 0 || isNamed && hash != txn.NodeHash(node) {
		return ""
	}
	return node
}

// Transactions returns the queues of all nodes: first the node that has waited longest, and the
// transactions of each node in order.
func (c *Cluster) Transactions(ctx context.Context) ([]Pending, []Malformed, error) {
	var pending []Pending
	var malformed []Malformed
	err := c.Queue().Each(ctx, func(cm *corev1.ConfigMap) error {
		if p, reason := queue.Parse(cm); reason != nil {
			malformed = append(malformed, Malformed{Object: cm, Reason: reason})
		} else {
			pending = append(pending, p)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	sortPending(pending)
	return pending, malformed, nil
}

// sortPending sorts the node that has waited longest first, and the transactions of each node in
// order.
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

// leases returns the matching Leases in a namespace: locks of nodes in the transaction namespace,
// and replicas in the membership namespace.
func (c *Cluster) leases(ctx context.Context, namespace string, matching ...client.ListOption) ([]*coordinationv1.Lease, error) {
	var leases []*coordinationv1.Lease
	err := pages.Each(ctx, c.Client, func() client.ObjectList { return &coordinationv1.LeaseList{} }, namespace,
		func(l *coordinationv1.Lease) error {
			leases = append(leases, l)
			return nil
		}, matching...)
	if err != nil {
		return nil, fmt.Errorf("listing the leases in namespace %q: %w", namespace, err)
	}
	return leases, nil
}
