package nodelock

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// observePeriod is the time between two looks at all locks.
const observePeriod = time.Second

// Observe looks at the locks of other processes once a second, until ctx is cancelled, while isWaiting says that one of them may be wanted
// soon. So the time of a lock counts from when its holder was first left alone with the node, and not only from when this process
// first asked for it: a holder that died costs one LeaseDuration and a second. A list of them is one read for as many nodes as are
// worked on at a time; to watch them would be two events for every lock.
func (l *Locker) Observe(ctx context.Context, isWaiting func() bool) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !isWaiting() {
			return
		}
		if err := l.observeOnce(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).V(1).Info("Looking at the locks of nodes failed, trying again in the next round", "error", err.Error())
		}
	}, observePeriod)
}

func (l *Locker) observeOnce(ctx context.Context) error {
	leases, err := l.list(ctx)
	if err != nil {
		return err
	}
	isThere := map[string]bool{}
	for i := range leases {
		if stored := &leases[i]; !isHeldBy(stored, l.identity) {
			isThere[stored.Name] = true
			l.others.see(stored)
		}
	}
	l.others.keepOnly(isThere)
	return nil
}

// list returns the locks of all processes.
func (l *Locker) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	if err := l.client.List(ctx, &list, client.InNamespace(l.namespace)); err != nil {
		return nil, fmt.Errorf("listing the locks of nodes: %w", err)
	}
	return list.Items, nil
}
