// Package removal removes the records of nodes that are away: for processors with a retention time,
// and for people who prune.
package removal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// retryPeriod is the time between two attempts at the second look.
	retryPeriod = 200 * time.Millisecond
	// lookLimit bounds these attempts after a shutdown has begun. With the release of the lock it
	// stays within the five seconds that a service has for that.
	lookLimit = time.Second
)

// Locks are the locks of nodes.
type Locks interface {
	// Do calls work under the lock of a node, or returns [nodelock.ErrHeld].
	Do(ctx context.Context, node string, work func(context.Context) error) error
	// Forget ends the wait for the lock of a node.
	Forget(node string)
}

// Remover removes records. All fields are required. It is safe for concurrent use.
type Remover struct {
	Nodes   *nodes.Nodes
	Queue   *queue.Queue
	Records *records.Records
	Locks   Locks
}

// Outcome is what became of a record.
type Outcome int

const (
	// Removed means that the node is forgotten: a floor is in the record's place.
	Removed Outcome = iota
	// Busy means that the record is kept, as somebody else has the lock of the node.
	Busy
	// Present means that the record is kept, as the node is there or has transactions.
	Present
	// Changed means that the record has been written since it was read.
	Changed
	// Gone means that somebody else has removed the record since it was read.
	Gone
	// Returned means that the record was put back, as the node came back just when it was removed.
	Returned
)

// Remove leaves a floor in place of the record in cm, under the node's lock, unless a live read
// shows that the node is not just away or that the record is not what it was. No write can be
// conditional on there being no Node, so Remove looks a second time, and puts the record back if
// the node has returned.
func (r *Remover) Remove(ctx context.Context, cm *corev1.ConfigMap) (outcome Outcome, err error) {
	err = r.Locks.Do(ctx, cm.Name, func(locked context.Context) (err error) {
		outcome, err = r.remove(ctx, locked, cm)
		return err
	})
	if errors.Is(err, nodelock.ErrHeld) {
		r.Locks.Forget(cm.Name)
		return Busy, nil // somebody works for this node, so it is not just away
	}
	return outcome, err
}

// Check returns what Remove would return if nothing else happened. It writes nothing, and takes no
// lock.
func (r *Remover) Check(ctx context.Context, cm *corev1.ConfigMap) (Outcome, error) {
	_, _, outcome, err := r.look(ctx, cm)
	return outcome, err
}

// remove is Remove under the lock. The second look does not depend on the lock: nobody else knows
// the labels any more.
func (r *Remover) remove(ctx, locked context.Context, cm *corev1.ConfigMap) (Outcome, error) {
	read, now, outcome, err := r.look(locked, cm)
	if err != nil || outcome != Removed {
		return outcome, err
	}
	floor := preserve.Forgotten(cm.Name, nil, now)
	_, err = r.Records.Forget(locked, read, floor)
	if errors.Is(err, records.ErrStale) {
		return Changed, nil
	}
	outcome, lookErr := r.lookAgain(ctx, read, floor)
	return outcome, errors.Join(err, lookErr) // after an error the record may be removed all the same
}

// look reads what there is of a node by live reads. The outcome is Removed if the record may be
// removed: then now is the revision of all Nodes at which there was none of that name.
func (r *Remover) look(ctx context.Context, cm *corev1.ConfigMap) (read records.Stored, now revision.Revision, outcome Outcome, err error) {
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

// away reports whether a live read finds neither the Node nor anything in its queue, and the
// revision of all Nodes then.
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

// lookAgain puts the record back unless the node is still away. It retries until it has an answer,
// and for lookLimit after a shutdown has begun.
func (r *Remover) lookAgain(ctx context.Context, read records.Stored, floor record.Record) (Outcome, error) {
	longer, cancel := grace.Context(ctx, lookLimit)
	defer cancel()
	outcome := Removed
	var last error
	err := wait.PollUntilContextCancel(longer, retryPeriod, true, func(ctx context.Context) (bool, error) {
		var away bool
		if _, away, last = r.away(ctx, floor.Node); last == nil && !away {
			outcome, last = r.putBack(ctx, read, floor)
		}
		return last == nil || nodes.Refused(last), nil
	})
	if err = cmp.Or(last, err); err != nil {
		return outcome, fmt.Errorf("looking for node %q once more: %w", floor.Node, err)
	}
	return outcome, nil
}

// putBack stores the record in place of its floor. Anything else that is there by now is of a later
// time, and stays.
func (r *Remover) putBack(ctx context.Context, read records.Stored, floor record.Record) (Outcome, error) {
	stored, err := r.Records.Get(ctx, floor.Node)
	switch {
	case err != nil:
		return Removed, err
	case stored.Record == nil || !stored.Record.Floor || stored.Record.Revision != floor.Revision:
		return Returned, nil // never removed, put back by an attempt whose answer was lost, or written since
	}
	again := read.Object.DeepCopy()
	delete(again.Annotations, record.AwaySinceAnnotation)
	if err := r.Records.Replace(ctx, stored.Object, again); err != nil {
		return Removed, fmt.Errorf("putting the record back: %w", err)
	}
	return Returned, nil
}
