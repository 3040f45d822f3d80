package nodelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/grace"
	"nodekeeper.dev/sharding/shardlease"
)

// errForeign means that the Lease with the name of the node is not a lock.
var errForeign = errors.New("the Lease is foreign")

// lease adapts the Lease of one node to client-go's leader election. Unlike resourcelock.LeaseLock
// it is made for locks that are held for milliseconds: it ends the election after one attempt,
// creates a lock that is most likely free without reading it first, skips the renewal immediately
// after the last write, and keeps the stored object so that it can be deleted with preconditions.
// Its fields belong to the goroutine that runs the election.
type lease struct {
	client    client.Client
	namespace string
	node      string
	identity  string
	others    *shardlease.Sightings

	stored    *coordinationv1.Lease // as last written, or last read when free or ours
	writtenAt time.Time

	held    bool   // whether the election took the lock
	failure error  // why it did not
	stop    func() // ends the election
}

var _ resourcelock.Interface = (*lease)(nil)

// Get reads the Lease. If this process knows of no other holder, Get skips the read, and
// [lease.Create] finds out. If another process holds the lock, the election ends: the elector would
// come to the same conclusion, and then wait.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if !l.held && !l.others.Has(l.node) {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), l.node)
	}
	record, err := l.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(record)
	return record, raw, err
}

// read reads the Lease. If its holder has not renewed it in time, it is returned without a holder,
// because the elector does not know the age of the lock.
func (l *lease) read(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	var stored coordinationv1.Lease
	err := l.client.Get(ctx, types.NamespacedName{Namespace: l.namespace, Name: l.node}, &stored)
	if err == nil && !IsLock(&stored) {
		err = errForeign
	}
	if err != nil {
		switch {
		case apierrors.IsNotFound(err): // a free lock
			l.others.Forget(l.node)
		case errors.Is(err, errForeign):
			l.others.Forget(l.node)
			l.fail(err)
		default:
			l.fail(fmt.Errorf("reading the lock of node %q: %w", l.node, err))
		}
		return nil, err
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&stored.Spec)
	if holder := record.HolderIdentity; holder != "" && holder != l.identity {
		now := time.Now()
		if recordSighting(l.others, &stored, now); l.others.Left(l.node, now) > 0 {
			l.fail(ErrHeld)
			return record, nil // stored stays: a former holder must not update the next one's Lease
		}
		record.HolderIdentity = ""
	}
	l.stored = &stored
	return record, nil
}

// recordSighting records the lock of another process, with its age according to the cluster.
func recordSighting(others *shardlease.Sightings, l *coordinationv1.Lease, now time.Time) {
	others.See(l, shardlease.StoredSince(l, now))
}

// Create creates the Lease, or takes it over if it is free. It is idempotent by its name: if the
// response is lost, the next attempt finds that this process holds it.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	created := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.node, Labels: map[string]string{Label: LabelValue}},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}
	ctx, cancel := l.answered(ctx)
	defer cancel()
	err := l.client.Create(ctx, created)
	if !apierrors.IsAlreadyExists(err) {
		return l.wrote(created, err)
	}
	existing, readErr := l.read(ctx)
	if apierrors.IsNotFound(readErr) {
		l.fail(ErrHeld) // it was held a moment ago
	}
	// This also applies to a former holder: its Lease was deleted, and this one is the next
	// holder's.
	if readErr != nil || existing.HolderIdentity != "" && existing.HolderIdentity != l.identity {
		return err
	}
	return l.Update(ctx, record)
}

// Update renews the Lease or takes it over, conditional on its resourceVersion.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	// The elector renews immediately after it has acquired. Half a retry period is far enough from
	// the renew deadline and the lease duration to skip that write.
	if l.held && time.Since(l.writtenAt) < retryPeriod/2 {
		return nil
	}
	ctx, cancel := l.answered(ctx)
	defer cancel()
	updated := l.stored.DeepCopy()
	if updated.Labels == nil { // of a version before the label
		updated.Labels = map[string]string{}
	}
	updated.Labels[Label] = LabelValue
	updated.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	return l.wrote(updated, l.client.Update(ctx, updated))
}

// answered returns the context of a write. The write that takes the lock outlives ctx by
// answerTimeout, because a lock that is taken without this process learning of it would not be
// released at shutdown.
func (l *lease) answered(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.held || ctx.Err() != nil {
		return context.WithCancel(ctx)
	}
	return grace.Context(ctx, answerTimeout)
}

// wrote records the result of a write.
func (l *lease) wrote(written *coordinationv1.Lease, err error) error {
	switch {
	case err == nil:
		l.stored, l.writtenAt, l.held = written, time.Now(), true
		l.others.Forget(l.node)
	case apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err):
		l.fail(ErrHeld) // another was faster
	default:
		l.fail(fmt.Errorf("taking the lock of node %q: %w", l.node, err))
	}
	return err
}

// fail ends an election that has not taken the lock. An election that has continues: the elector
// retries until the renew deadline.
func (l *lease) fail(err error) {
	if !l.held && l.failure == nil { // later attempts of the elector only report the cancellation
		l.failure = err
		l.stop()
	}
}

// release deletes the Lease if this process still holds it.
func (l *lease) release(ctx context.Context) error {
	if !l.isOurs() {
		return nil // taken over, as the last renewal found
	}
	err := l.delete(ctx)
	if !apierrors.IsConflict(err) {
		return err
	}
	// Conflict: taken over, or the response to a renewal was lost.
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

func (l *lease) isOurs() bool { return shardlease.Holder(l.stored) == l.identity }

func (l *lease) delete(ctx context.Context) error {
	err := l.client.Delete(ctx, l.stored, client.Preconditions{UID: &l.stored.UID, ResourceVersion: &l.stored.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) { // NotFound: the response to a delete was lost
		return fmt.Errorf("releasing the lock of node %q: %w", l.node, err)
	}
	return nil
}

// RecordEvent does nothing, because a lock that lives for milliseconds needs no events.
func (l *lease) RecordEvent(string) {}

// Identity returns the identity of this process.
func (l *lease) Identity() string { return l.identity }

// Describe names the lock in logs.
func (l *lease) Describe() string { return l.namespace + "/" + l.node }
