package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/txn"
)

// maxConflicts bounds the conflicts that are retried at once.
const maxConflicts = 10

// errChanged means that a Node has changed since it was read.
var errChanged = errors.New("the node has changed")

// protect adds the finalizer to a cached Node.
func (c *Controller) protect(ctx context.Context, n *nodeview.Node) error {
	err := c.Nodes.Protect(ctx, n)
	if errors.Is(err, nodes.ErrStale) {
		return nil // the conflicting change enqueues the Node again
	}
	return err
}

// unprotect removes the finalizer from a Node, conditional on the cached Node. It stores no labels.
func (c *Controller) unprotect(ctx context.Context, n *nodeview.Node) error {
	err := c.Nodes.Unprotect(ctx, n)
	if errors.Is(err, nodes.ErrStale) {
		return nil // the conflicting change enqueues the Node again
	}
	return err
}

// release stores the last labels of a Node that waits for the finalizer, and removes the finalizer.
func (c *Controller) release(ctx context.Context, name string) error {
	for range maxConflicts {
		readAt := time.Now()
		n, err := c.Nodes.Get(ctx, name)
		if err != nil || n == nil || !nodes.WaitsForFinalizer(n) {
			return err // another process has released it, or it is another incarnation
		}
		unchanged := func(ctx context.Context, _ []txn.Transaction) error { return c.unchanged(ctx, n, readAt) }
		err = c.save(ctx, txn.EndSeen(n, false), unchanged)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return err
		}
		err = c.Nodes.Unprotect(ctx, n)
		if errors.Is(err, nodes.ErrStale) {
			continue // there may be later labels
		}
		if err == nil {
			logf.FromContext(ctx).Info("Released a node whose labels are saved", "uid", n.UID, "resourceVersion", n.Revision)
		}
		return err
	}
	return fmt.Errorf("releasing node %q: %d conflicts in a row", name, maxConflicts)
}

// save stores the end of a node as if a watcher had recorded it, after the transactions that
// [preserve.Ending] puts before it. The cache may still show a record that has been removed.
func (c *Controller) save(ctx context.Context, end txn.Transaction, confirm func(context.Context, []txn.Transaction) error) error {
	stored, err := c.Records.Cached(ctx, end.Node)
	if err != nil {
		return err
	}
	queued, err := c.waiting(ctx, end.Node, preserve.NotesEnding(end, stored.Record))
	if err != nil {
		return err
	}
	if queued, err = c.earlierFirst(ctx, end, queued); err != nil {
		return err
	}
	waiting := make([]txn.Transaction, len(queued))
	for i, t := range queued {
		waiting[i] = t.Transaction
	}
	_, err = c.Applier.Apply(ctx, preserve.Ending(end, stored.Record, waiting), confirm)
	return err
}

// waiting returns the pending transactions of a node, oldest first. If the record notes the
// incarnation, they only contribute the labels that its agents have withdrawn since, and the cache
// is good enough.
func (c *Controller) waiting(ctx context.Context, node string, noted bool) ([]queue.Queued, error) {
	if noted && c.Index.Synced() {
		return c.Index.Pending(node), nil
	}
	return c.Queue.Of(ctx, node)
}

// earlierFirst moves the transactions of an earlier history to the front, and marks them. All of
// them were read before, so those of this history are not later than the revision of all Nodes.
func (c *Controller) earlierFirst(ctx context.Context, end txn.Transaction, pending []queue.Queued) ([]queue.Queued, error) {
	if !slices.ContainsFunc(pending, func(t queue.Queued) bool { return t.Revision.After(end.Revision) }) {
		return pending, nil
	}
	now, err := c.Applier.Now(ctx)
	if err != nil || now.IsZero() {
		return pending, err
	}
	return queue.EarlierFirst(pending, func(t queue.Queued) bool { return t.Revision.After(now) }), nil
}

// unchanged returns errChanged if a Node whose read began at readAt may have been of a lost future,
// and is another one now. Call it after all other reads: the client retries these while the API
// server is down, so they may take longer than a restore of etcd.
func (c *Controller) unchanged(ctx context.Context, read *nodeview.Node, readAt time.Time) error {
	if !c.Rewind.Unconfirmed(readAt) {
		return nil
	}
	n, err := c.Nodes.GetMetadata(ctx, read.Name)
	if err != nil {
		return err
	}
	if n == nil || n.UID != read.UID || n.Revision != read.Revision {
		return errChanged
	}
	return nil
}

// saveLate stores the late ends of a node. A Node that was deleted before it had the finalizer was
// never released, so events of earlier incarnations may still be pending.
func (c *Controller) saveLate(ctx context.Context, node string) error {
	for {
		t, ok := c.late.oldest(node)
		if !ok {
			return nil
		}
		confirm := func(ctx context.Context, _ []txn.Transaction) error {
			if !c.Rewind.Unconfirmed(t.ObservedAt) {
				return nil
			}
			return c.Nodes.ConfirmEvent(ctx, t, c.Rewind.ReportRewind)
		}
		if err := c.save(ctx, t, confirm); err != nil {
			return err
		}
		c.late.removeOldest(node)
	}
}
