package nodelock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/grace"
)

// lease is the Lease of one node as client-go's leader election sees it. It differs from
// resourcelock.LeaseLock in what a lock that is held for milliseconds needs: it ends the
// election after one attempt, it asks for a lock that is most likely free by creating it and not by a read, it leaves out a
// renewal that follows at once on the last write, and it knows the stored object, so that it can be deleted with preconditions.
// Its fields belong to the goroutine that runs the election.
type lease struct {
	client    client.Client
	namespace string
	node      string
	identity  string
	others    *sightings

	stored    *coordinationv1.Lease // as last read or written
	writtenAt time.Time

	held    bool   // whether the election took the lock
	failure error  // why it did not
	stop    func() // ends the election
}

var _ resourcelock.Interface = (*lease)(nil)

// Get reads the Lease, unless none is known of that this process does not hold: then [lease.Create] finds out. If another holds it, the
// election ends: the elector would come to the same conclusion, and then wait.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if !l.held && !l.others.has(l.node) {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), l.node)
	}
	record, err := l.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

// read reads the Lease. One that its holder did not renew in time is returned as nobody's: the elector has not seen since when.
func (l *lease) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	var stored coordinationv1.Lease
	err := l.client.Get(ctx, types.NamespacedName{Namespace: l.namespace, Name: l.node}, &stored)
	if err != nil {
		if apierrors.IsNotFound(err) { // which is how a free lock looks
			l.others.forget(l.node)
		} else {
			l.fail(fmt.Errorf("reading the lock of node %q: %w", l.node, err))
		}
		return nil, err
	}
	l.stored = &stored
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&stored.Spec)
	if record.HolderIdentity == "" || l.isOurs() {
		return record, nil
	}
	if l.others.see(&stored) > 0 {
		l.fail(ErrHeld)
	} else {
		record.HolderIdentity = ""
	}
	return record, nil
}

// Create makes the Lease, or takes it over. It is idempotent by its name: if the answer is lost, the next attempt finds it held by this
// process.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	created := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.node},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}
	ctx, cancel := l.answered(ctx)
	defer cancel()
	err := l.client.Create(ctx, created)
	if !apierrors.IsAlreadyExists(err) {
		return l.wrote(created, err)
	}
	if _, readErr := l.read(ctx); readErr != nil || l.failure != nil {
		if apierrors.IsNotFound(readErr) {
			l.fail(ErrHeld) // it was, a moment ago
		}
		return err
	}
	return l.Update(ctx, record)
}

// Update renews the Lease or takes it over, conditional on its resourceVersion.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	// The elector renews at once after it has acquired. Half a retry period is far enough
	// from the renew deadline and the lease duration to leave that write out.
	if l.held && time.Since(l.writtenAt) < retryPeriod/2 {
		return nil
	}
	ctx, cancel := l.answered(ctx)
	defer cancel()
	updated := l.stored.DeepCopy()
	updated.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	return l.wrote(updated, l.client.Update(ctx, updated))
}

// answered returns the context of a write. The write that takes the lock outlives a process that is
// told to end by answerTimeout: nobody would release a lock if it is not known to be taken.
func (l *lease) answered(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.held || ctx.Err() != nil {
		return context.WithCancel(ctx)
	}
	return grace.Context(ctx, answerTimeout)
}

// wrote notes the result of a write.
func (l *lease) wrote(written *coordinationv1.Lease, err error) error {
	switch {
	case err == nil:
		l.stored, l.writtenAt, l.held = written, time.Now(), true
		l.others.forget(l.node)
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err):
		l.fail(ErrHeld) // another was faster
	default:
		l.fail(fmt.Errorf("taking the lock of node %q: %w", l.node, err))
	}
	return err
}

// fail ends an election that has not taken the lock. One that has goes on: the elector
// tries to renew until the renew deadline.
func (l *lease) fail(err error) {
	if !l.held && l.failure == nil { // what the elector still tries after the first failure is cancelled
		l.failure = err
		l.stop()
	}
}

// release deletes the Lease if this process still holds it.
func (l *lease) release(ctx context.Context) error {
	if !l.isOurs() {
		return nil // taken over, as the last attempt to renew it found
	}
	err := l.delete(ctx)
	if !apierrors.IsConflict(err) {
		return err
	}
	// Conflict: taken over, or the answer to a renewal was lost.
	var stored coordinationv1.Lease
	err = l.client.Get(ctx, client.ObjectKeyFromObject(l.stored), &stored)
	if apierrors.IsNotFound(err) {
		return nil // taken over, and released since
	}
	if err != nil {
		return fmt.Errorf("reading the lock of node %q: %w", l.node, err)
	}
	l.stored = &stored
	if !l.isOurs() {
		return nil // taken over
	}
	return l.delete(ctx)
}

func (l *lease) isOurs() bool { return isHeldBy(l.stored, l.identity) }

func isHeldBy(l *coordinationv1.Lease, identity string) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == identity
}

func (l *lease) delete(ctx context.Context) error {
	err := l.client.Delete(ctx, l.stored, client.Preconditions{UID: &l.stored.UID, ResourceVersion: &l.stored.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) { // NotFound: the answer to a delete was lost
		return fmt.Errorf("releasing the lock of node %q: %w", l.node, err)
	}
	return nil
}

// RecordEvent does nothing: a lock that comes and goes in milliseconds is no event for people.
func (l *lease) RecordEvent(string) {}

// Identity returns the identity of this process.
func (l *lease) Identity() string { return l.identity }

// Describe names the lock in logs.
func (l *lease) Describe() string { return l.namespace + "/" + l.node }
