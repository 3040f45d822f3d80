package byhand

import (
	"context"
	"fmt"
	"time"

	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
)

// endMissing reports whether the record follows an incarnation that no longer exists, but does not
// have its end.
func endMissing(n *inspect.Node) bool {
	r := n.Saved.Record
	if r == nil || r.Source == "" || r.Ended {
		return false
	}
	return n.Live == nil || !preserve.Owned(*r, n.Live.UID, n.Live.Marker)
}

// awaitEnd waits until the record has the end of its incarnation, and returns the node.
//
// A watcher may have seen the last edit and the end of a node without having stored them: after its
// start, after a gap, or while it leaves the node to another watcher. No transaction is pending
// then, but a write to the record, or a restore from it, must not overtake these events. If no
// watcher saw the end, it is never recorded: awaitEnd does not wait while no watcher runs, and
// users can override it. They must do so if the membership namespace has no Leases at all, as it
// may be the wrong one.
func awaitEnd(ctx context.Context, c *inspect.Cluster, n *inspect.Node, timeout time.Duration, progress Progress) (*inspect.Node, error) {
	recorded, err := poll(ctx, timeout, func() (bool, error) {
		if !endMissing(n) {
			return true, nil
		}
		watched, certain, err := c.Watched(ctx)
		switch {
		case err != nil:
			return false, err
		case !certain:
			return false, fmt.Errorf("the end of node %q is not on record, and no replica has a Lease in namespace %q, so it is unknown whether a watcher "+
				"is about to record it: give the --membership-namespace of the watchers, or, if none is running, --ignore-missing-end", n.Name, c.MembershipNamespace)
		case !watched:
			return true, nil
		}
		for _, t := range n.Pending {
			if err := c.Queue().Expedite(ctx, t); err != nil {
				return false, err
			}
		}
		progress("Waiting for the watchers to record the end of node %s", n.Name)
		n, err = c.Node(ctx, n.Name)
		return false, err
	})
	if err == nil && !recorded {
		err = fmt.Errorf("the end of node %q is not on record after %s: a watcher may be about to record it, with labels that would be lost; "+
			"if none has seen it, give --ignore-missing-end", n.Name, timeout)
	}
	return n, err
}
