package shard

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// leavePeriod is the interval at which a leaving shard counts the objects in its caches.
	leavePeriod = 100 * time.Millisecond
	// returnPeriod is the interval at which a returning shard checks for objects of its
	// predecessor, by a read from etcd.
	returnPeriod = 500 * time.Millisecond
	// The sharder takes objects from a shard if it has read, at most two seconds ago, that the
	// shard's Lease is free. It may still do so for up to returnMin after the shard has acquired
	// the Lease again. After returnMax, even its last requests have timed out.
	returnMin, returnMax = 3 * time.Second, 15 * time.Second
)

// begin lets this shard act once it holds its Lease and the sharder has noticed that. If an earlier
// shard of this name has released its Lease, the sharder may still be taking objects from it.
func (s *Shard) begin(ctx context.Context) {
	select {
	case <-s.right.held:
	case <-s.right.ended:
		return
	case <-ctx.Done():
		return
	}
	l, held := s.acquired.Load(), time.Now()
	isReturn := l.Spec.LeaseTransitions != nil && *l.Spec.LeaseTransitions > 0
	isNew := l.Spec.AcquireTime != nil && l.Spec.RenewTime != nil && l.Spec.AcquireTime.Equal(l.Spec.RenewTime)
	for isNew && time.Since(held) < returnMax {
		if (!isReturn || time.Since(held) >= returnMin) && !s.hasObjects(ctx) {
			break
		}
		timer := time.NewTimer(returnPeriod)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
	logf.FromContext(ctx).V(1).Info("Holding the Lease of this shard", "shard", s.options.Name, "waited", time.Since(held).String())
	s.right.begin()
}

// hasObjects reports whether any main objects have the label of this shard. After an error it
// assumes that some do.
func (s *Shard) hasObjects(ctx context.Context) bool {
	own := client.MatchingLabels{s.options.LabelPrefix.ShardLabel(s.options.Ring): s.options.Name}
	for _, m := range s.reconciled() {
		for _, namespace := range s.scopes(m.kind.GroupKind()) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(m.kind.GroupVersion().WithKind(m.kind.Kind + "List"))
			err := s.live.List(ctx, list, own, client.InNamespace(namespace), client.Limit(1))
			if err != nil {
				logf.FromContext(ctx).Info("Checking for objects of this shard's predecessor failed, retrying", "kind", m.kind.Kind, "error", err.Error())
			}
			if err != nil || len(list.Items) > 0 {
				return true
			}
		}
	}
	return false
}

// leave asks the sharder to move this shard's objects. It returns when the shard has none left,
// after LeaveTimeout, or when the shard may no longer act. A shard that has not begun to act has
// nothing to release.
func (s *Shard) leave(ctx context.Context) {
	select {
	case <-s.right.begun:
	default:
		return
	}
	ctx, cancel := s.right.bound(ctx, ErrLeaseLost)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, s.options.LeaveTimeout)
	defer end()
	s.keeper.Annotate(s.options.LabelPrefix.LeavingAnnotation(), "true")
	tick := time.NewTicker(leavePeriod)
	defer tick.Stop()
	for !s.isEmpty(ctx) {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				logf.FromContext(ctx).Info("Leaving before all objects have moved: see LeaveTimeout", "shard", s.options.Name, "objects", s.countAll(context.WithoutCancel(ctx)), "waited", s.options.LeaveTimeout.String())
			}
			return
		case <-tick.C:
		}
	}
}

// isEmpty reports whether the caches hold no main object. It returns false if a cache cannot be
// read.
func (s *Shard) isEmpty(ctx context.Context) bool {
	for _, m := range s.reconciled() {
		if n, err := s.countIn(ctx, m, 1); err != nil || n > 0 {
			return false
		}
	}
	return true
}
