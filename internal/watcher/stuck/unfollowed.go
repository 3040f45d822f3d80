package stuck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// Unfollowed reports, by Warning events, Nodes whose record follows another Node although no
// transaction of them is left: the record has been replaced, for example by one from a backup. All
// fields are required; Events and Owner have the same meaning as in a [Reporter]. It is safe for
// concurrent use.
type Unfollowed struct {
	// Nodes has all Nodes, and Stored the transactions and the records.
	Nodes  nodes.Cache
	Stored Stored
	Events events.EventRecorder
	Owner  func(node string) bool

	before map[types.UID]bool // at the last check; only Run uses it
}

// Stored has the transactions and the records of the cluster. It may be stale.
type Stored interface {
	// Record returns the record of a node, possibly without its labels, or nil if there is no readable
	// one.
	Record(node string) *record.Record
	// Pending returns the hashes of the nodes with pending transactions, see [txn.NodeHash].
	Pending() map[string]bool
}

// Run checks once a minute until ctx is done, and records an event on each owned Node that was
// already not followed at the previous check. It returns nil. Call it once.
func (u *Unfollowed) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, u.report, period)
	return nil
}

func (u *Unfollowed) report(ctx context.Context) {
	all, err := u.all()
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to look for records that do not follow their nodes")
		return
	}
	before := u.before
	u.before = make(map[types.UID]bool, len(all))
	for _, n := range all {
		u.before[n.UID] = true
		if before[n.UID] {
			u.Events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.RecordUnfollowed, "Save",
				"The record of this node follows another Node of its name: the record was replaced. To save the labels that the node has now: kubectl nodekeeper save %s", n.Name)
		}
	}
}

// all returns the owned Nodes whose record was replaced. A missing or unreadable record is reported
// elsewhere.
func (u *Unfollowed) all() (all []*nodeview.Node, err error) {
	cached, err := u.Nodes.All()
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	pending := u.Stored.Pending()
	for n := range cached {
		if !u.Owner(n.Name) || n.Unselected || n.IsDeleting() || pending[txn.NodeHash(n.Name)] {
			continue
		}
		if r := u.Stored.Record(n.Name); r != nil && preserve.FollowsAnother(*r, n.UID) {
			all = append(all, n)
		}
	}
	return all, nil
}
