package protection

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/txn"
)

// LateEnds returns what is kept of the ends of a node after its watch showed these states, each the next of the one before; nil: it is gone.
func LateEnds(node string, states ...*metav1.PartialObjectMetadata) []txn.Transaction {
	var l lateEdits
	var before *metav1.PartialObjectMetadata
	for _, after := range states {
		if after == nil {
			l.end(before)
		} else {
			l.see(before, after)
		}
		before = after
	}
	return l.ends[node]
}

// Save stores the end of a node as before its finalizer is removed, without a cluster that may be rewound.
func (c *Controller) Save(ctx context.Context, end txn.Transaction) error {
	return c.save(ctx, end, func(context.Context, []txn.Transaction) error { return nil })
}
