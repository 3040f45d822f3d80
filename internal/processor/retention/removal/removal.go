// Package removal removes the records of absent nodes, for processors with a retention time and for
// the plugin's prune command.
package removal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"nodekeeper.dev/internal/daemon/grace"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
)

const (
	// retryPeriod is the interval between two attempts at the second check.
	retryPeriod = 200 * time.Millisecond
	// recheckLimit bounds these attempts after a shutdown has begun. Together with the release of the
	// lock it fits into the five seconds that a service has to shut down.
	recheckLimit = time.Second
)

// Locks holds the locks of nodes.
type Locks interface {
	// Do calls work under the lock of a node, or returns [nodelock.ErrHeld].
	Do(ctx context.Context, node string, work func(context.Context) error) error
	// Forget stops waiting for the lock of a node.
	Forget(node string)
}

// Remover removes records. All fields are required. It is safe for concurrent use.
type Remover struct {
	Nodes   *nodes.Nodes
	Queue   *queue.Queue
	Records *records.Records
	Locks   Locks
	// Repeating receives the first error of a second check, which is repeated until it succeeds.
	Repeating func(ctx context.Context, node string, err error)
}

// Outcome is the result of a removal.
type Outcome int

const (
	// Removed means that the record was replaced by a floor.
	Removed Outcome = iota
	// Busy means that the record is kept because another process holds the lock of the node.
	Busy
	// Present means that the record is kept because the node exists or has transactions.
	Present
	// Changed means that the record has been written since it was read.
	Changed
	// Gone means that the record has been removed since it was read.
	Gone
	// Returned means that the record was restored because the node returned during the removal.
	Returned
)

// Remove replaces the record in cm by a floor, under the node's lock. It keeps the record if live
// reads show that the node is not absent or that the record has changed. No write can be
// conditional on the absence of a Node, so Remove checks again after the write, and restores the
// record if the node has returned.
func (r *Remover) Remove(ctx context.Context, cm *corev1.ConfigMap) (outcome Outcome, err error) {
	err = r.Locks.Do(ctx, cm.Name, func(locked context.Context) (err error) {
		outcome, err = r.remove(ctx, locked, cm)
		return err
	})
	if errors.Is(err, nodelock.ErrHeld) {
		r.Locks.Forget(cm.Name)
		return Busy, nil // another process works on this node, so it is not just absent
	}
	return outcome, err
}

// Check returns the outcome that Remove would have now. It writes nothing, and takes no lock.
func (r *Remover) Check(ctx context.Context, cm *corev1.ConfigMap) (Outcome, error) {
	_, _, outcome, err := r.inspect(ctx, cm)
	return outcome, err
}

// remove is Remove under the lock. The second check does not use the context of the lock: by then
// this process is the only one that has the labels.
func (r *Remover) remove(ctx, locked context.Context, cm *corev1.ConfigMap) (Outcome, error) {
	read, now, outcome, err := r.inspect(locked, cm)
	if err != nil || outcome != Removed {
		return outcome, err
	}
	floor := preserve.Forgotten(cm.Name, nil, nil, now)
	_, err = r.Records.Forget(locked, read, floor)
	if errors.Is(err, records.ErrStale) {
		return Changed, nil
	}
	outcome, recheckErr := r.recheck(ctx, read, floor)
	return outcome, errors.Join(err, recheckErr) // the record may have been removed despite an error
}

// check reads the record and the Node live. The outcome is Removed if the record may be removed;
// now is then the revision of the Nodes at which the node was absent.
func (r *Remover) inspect(ctx context.Context, cm *corev1.ConfigMap) (read records.Stored, now revision.Revision, outcome Outcome, err error) {
	if read, err = r.Records.Get(ctx, cm.Name); err != nil {
		return read, now, Changed, err
	}
	switch {
	case read.Object == nil || read.Record != nil && read.Record.Floor:
		return read, now, Gone, nil
	case read.Record == nil || read.Object.UID != cm.UID || read.Object.ResourceVersion != cm.ResourceVersion:
		return read, now, Changed, nil
	}
	now, away, err := r.away(ctx, cm.Name)
	if err != nil || !away {
		return read, now, Present, err
	}
	return read, now, Removed, nil
}

// away reports whether live reads find neither the Node nor any of its transactions, and returns
// the revision of the Nodes at that time.
func (r *Remover) away(ctx context.Context, name string) (now revision.Revision, away bool, err error) {
	node, now, err := r.Nodes.At(ctx, name)
	if err != nil || node != nil {
		return now, false, err
	}
	if now.IsZero() {
		return now, false, fmt.Errorf("reading node %q: the API server returned no resourceVersion", name)
	}
	empty, err := r.Queue.Empty(ctx, name)
	return now, empty, err
}

// recheck restores the record unless the node is still away. It retries until the check succeeds,
// and for at most recheckLimit after a shutdown has begun.
func (r *Remover) recheck(ctx context.Context, read records.Stored, floor record.Record) (Outcome, error) {
	longer, cancel := grace.Context(ctx, recheckLimit)
	defer cancel()
	outcome := Removed
	var last error
	report := sync.OnceFunc(func() { r.Repeating(ctx, floor.Node, last) })
	err := wait.PollUntilContextCancel(longer, retryPeriod, true, func(ctx context.Context) (bool, error) {
		var away bool
		if _, away, last = r.away(ctx, floor.Node); last == nil && !away {
			outcome, last = r.restore(ctx, read, floor)
		}
		if last == nil || nodes.Refused(last) {
			return true, nil
		}
		report()
		return false, nil
	})
	if err = cmp.Or(last, err); err != nil {
		return outcome, fmt.Errorf("rechecking node %q: %w", floor.Node, err)
	}
	return outcome, nil
}

// restore replaces the floor by the record. It leaves anything else alone, since that was written
// later.
func (r *Remover) restore(ctx context.Context, read records.Stored, floor record.Record) (Outcome, error) {
	stored, err := r.Records.Get(ctx, floor.Node)
	switch {
	case err != nil:
		return Removed, err
	case stored.Record == nil || !stored.Record.Floor || stored.Record.Revision != floor.Revision:
		return Returned, nil // not removed, already restored by an attempt whose answer was lost, or written since
	}
	again := read.Object.DeepCopy()
	delete(again.Annotations, record.AwaySinceAnnotation)
	if err := r.Records.Replace(ctx, stored.Object, again); err != nil {
		return Removed, fmt.Errorf("restoring the record: %w", err)
	}
	return Returned, nil
}
