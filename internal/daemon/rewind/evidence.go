package rewind

import (
	"context"
	"errors"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/shardlease"
)

// retryPeriod is the time between two attempts to get evidence.
const retryPeriod = time.Second

// Evidence proves that events are part of the cluster's history. [shardlease.Keeper] implements it,
// if its Lease is in the same etcd as the watched objects.
type Evidence interface {
	// Confirm returns a time: everything that this process observed before then is part of the
	// cluster's current history. The proof rests on something that the process wrote before the
	// given time and that still exists. If there is none, the error wraps [shardlease.ErrUnproven];
	// after any other error, a retry may succeed.
	Confirm(ctx context.Context, before time.Time) (until time.Time, err error)
}

var _ Evidence = (*shardlease.Keeper)(nil)

// confirm requests evidence after each interruption, until ctx is done.
func (d *Detector) confirm(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.resumed:
		case <-retry.C:
		}
		if !d.confirmOnce(ctx) {
			retry.Reset(retryPeriod)
		}
	}
}

// confirmOnce requests evidence if a period needs it, and reports whether that is settled.
func (d *Detector) confirmOnce(ctx context.Context) bool {
	d.mu.Lock()
	evidence, before, to := d.evidence, d.periods.alive, d.periods.open.to
	waiting := d.periods.isOpen && len(d.interrupted) == 0
	d.mu.Unlock()
	if !waiting {
		return true // the next watch that resumes requests it again
	}
	var until time.Time
	if evidence != nil {
		var err error
		until, err = evidence.Confirm(ctx, before)
		if err != nil && !errors.Is(err, shardlease.ErrUnproven) {
			return false
		}
		if err != nil {
			logf.FromContext(ctx).Info("Could not rule out an etcd restore while a watch was interrupted, confirming earlier events by live reads")
			until = time.Time{}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.interrupted) > 0 {
		return true // as above
	}
	d.periods.settle(until, to)
	return !d.periods.isOpen
}
