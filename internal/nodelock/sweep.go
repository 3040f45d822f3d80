package nodelock

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// sweepPeriod is far longer than LeaseDuration: a Lease that did not change for so long has no holder.
const sweepPeriod = time.Minute

// Sweep deletes, until ctx is cancelled, the locks that processors left behind when they
// died with nothing more to do for the node; isWanted says of a node whether there is. A
// lock that is wanted is taken over by [Locker.Do] instead.
func (l *Locker) Sweep(ctx context.Context, isWanted func(ctx context.Context, node string) bool) {
	seen := map[types.UID]string{} // resourceVersions at the sweep before
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var err error
		if seen, err = l.sweepOnce(ctx, seen, isWanted); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Sweeping the locks of nodes failed, trying again in the next round")
		}
	}, sweepPeriod)
}

// sweepOnce deletes the locks that have not changed since before and returns the others.
func (l *Locker) sweepOnce(ctx context.Context, before map[types.UID]string, isWanted func(context.Context, string) bool) (map[types.UID]string, error) {
	leases, err := l.list(ctx)
	if err != nil {
		return before, err
	}
	seen := map[types.UID]string{}
	var errs []error
	for i := range leases {
		stored := &leases[i]
		if before[stored.UID] != stored.ResourceVersion || isWanted(ctx, stored.Name) {
			seen[stored.UID] = stored.ResourceVersion
			continue
		}
		left := &lease{client: l.client, namespace: l.namespace, node: stored.Name, identity: l.identity, others: l.others, stored: stored}
		err := left.delete(ctx)
		if apierrors.IsConflict(err) {
			continue // it was taken just now
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		logf.FromContext(ctx).Info("Removed a lock that was left behind", "node", stored.Name)
	}
	return seen, errors.Join(errs...)
}
