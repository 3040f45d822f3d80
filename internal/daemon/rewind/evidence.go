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

// Evidence shows what is part of the cluster's history. [shardlease.Keeper] is one, if its Lease is
// in the etcd of what is watched.
type Evidence interface {
	// Confirm returns a time: all that this process observed before then is part of the history
	// that the cluster has now. The proof rests on something that the process wrote before the
	// given time and that is still there. It returns an error that wraps [shardlease.ErrUnproven]
	// if there is none, any other if a retry may have a result.
	Confirm(ctx context.Context, before time.Time) (until time.Time, err error)
}

var _ Evidence = (*shardlease.Keeper)(nil)

// confirm asks for evidence after each interruption, until ctx is done.
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

// confirmOnce asks for evidence if there is a doubt that may need it, and reports whether that is
// settled.
func (d *Detector) confirmOnce(ctx context.Context) bool {
	d.mu.Lock()
	evidence, before, to := d.evidence, d.doubts.alive, d.doubts.open.to
	waiting := d.doubts.isOpen && len(d.interrupted) == 0
	d.mu.Unlock()
	if !waiting {
		return true // the next watch that resumes asks again
	}
	var until time.Time
	if evidence != nil {
		var err error
		until, err = evidence.Confirm(ctx, before)
		if err != nil && !errors.Is(err, shardlease.ErrUnproven) {
			return false
		}
		if err != nil {
			logf.FromContext(ctx).Info("Found no proof that etcd was not restored while a watch was interrupted: live reads confirm what was observed before")
			until = time.Time{}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.interrupted) > 0 {
		return true // as above
	}
	d.doubts.settle(until, to)
	return !d.doubts.isOpen
}
