package nodelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/shardlease"
)

// sweepPeriod is far longer than LeaseDuration, so a Lease that has not changed for that long has
// no holder.
const sweepPeriod = time.Minute

// Sweep deletes, until ctx is cancelled, the locks that crashed processors left behind if there is
// no more work for the node, as reported by wanted. A lock that is wanted is taken over by
// [Locker.Do] instead.
func (l *Locker) Sweep(ctx context.Context, wanted func(ctx context.Context, node string) bool) {
	var seen shardlease.Sightings
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := l.sweepOnce(ctx, &seen, wanted); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Failed to sweep the locks of nodes, retrying in the next round")
		}
	}, sweepPeriod)
}

// sweepOnce deletes the locks that have been seen unchanged for a period.
func (l *Locker) sweepOnce(ctx context.Context, seen *shardlease.Sightings, wanted func(context.Context, string) bool) error {
	leases, err := l.list(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	listed := map[string]bool{}
	var errs []error
	for i := range leases {
		stored := &leases[i]
		listed[stored.Name] = true
		if now.Sub(seen.See(stored, now)) < sweepPeriod || wanted(ctx, stored.Name) {
			continue
		}
		left := &lease{client: l.client, namespace: l.namespace, node: stored.Name, identity: l.identity, stored: stored}
		switch err := left.delete(ctx); {
		case apierrors.IsConflict(err):
			// It was just taken.
		case err != nil:
			errs = append(errs, err)
		default:
			logf.FromContext(ctx).Info("Deleted an orphaned lock", "node", stored.Name)
		}
	}
	seen.Keep(listed)
	return errors.Join(errs...)
}

// list returns the locks of all processes.
func (l *Locker) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	if err := l.client.List(ctx, &list, client.InNamespace(l.namespace), locks); err != nil {
		return nil, fmt.Errorf("listing the locks of nodes: %w", err)
	}
	return list.Items, nil
}
