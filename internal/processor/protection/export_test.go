package protection

import (
	"context"
	"time"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/txn"
)

// LateEnds returns the ends of a node that are kept after its watch delivered these states in this
// order; nil stands for a deleted Node.
func LateEnds(node string, states ...*nodeview.Node) []txn.Transaction {
	var l lateEdits
	var before *nodeview.Node
	for _, after := range states {
		if after == nil {
			l.end(before, nil, true)
		} else {
			l.observe(before, after)
		}
		before = after
	}
	return l.ends[node]
}

// Save stores the end of a node as before the removal of its finalizer, in a cluster without an
// etcd restore.
func (c *Controller) Save(ctx context.Context, end txn.Transaction) error {
	return c.save(ctx, end, func(context.Context, []txn.Transaction) error { return nil })
}

// Unchanged checks whether a Node whose read began at readAt is still the one that was read.
func (c *Controller) Unchanged(ctx context.Context, read *nodeview.Node, readAt time.Time) error {
	return c.unchanged(ctx, read, readAt)
}

// ErrChanged is the error of Unchanged.
var ErrChanged = errChanged
