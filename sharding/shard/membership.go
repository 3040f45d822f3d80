package shard

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// leavePeriod is how often a shard that leaves counts its objects, in its caches.
	leavePeriod = 100 * time.Millisecond
	// returnPeriod is how often a shard that returns counts its former objects, by a read from etcd.
	returnPeriod = 500 * time.Millisecond
	// The sharder takes objects from a shard whose Lease was free when it read that, at most two seconds ago.
	// It may still do so for returnMin after the shard has taken the Lease again. By returnMax its requests
	// have timed out, too.
	returnMin, returnMax = 3 * time.Second, 15 * time.Second
)

// begin lets this shard act when it holds its Lease and the sharder knows that: if a shard of this name
// was here before and has released its Lease, the sharder may just be taking objects from it.
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

// hasObjects reports whether main objects have the label of this shard. It assumes so after an error.
func (s *Shard) hasObjects(ctx context.Context) bool {
	own := client.MatchingLabels{s.options.LabelPrefix.ShardLabel(s.options.Ring): s.options.Name}
	for _, m := range s.reconciled() {
		for _, namespace := range s.scopes(m.kind.GroupKind()) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(m.kind.GroupVersion().WithKind(m.kind.Kind + "List"))
			err := s.live.List(ctx, list, own, client.InNamespace(namespace), client.Limit(1))
			if err != nil {
				logf.FromContext(ctx).Info("Looking for former objects of this shard failed, retrying", "kind", m.kind.Kind, "error", err.Error())
			}
			if err != nil || len(list.Items) > 0 {
				return true
			}
		}
	}
	return false
}

// leave tells the sharder that this shard gives its objects away, and returns when it has none, after
// LeaveTimeout, or when it may not act any more. A shard that has not begun has nothing to give away.
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
			return
		case <-tick.C:
		}
	}
}

// isEmpty reports whether the caches hold no main object. An error means that it is not known.
func (s *Shard) isEmpty(ctx context.Context) bool {
	for _, m := range s.reconciled() {
		if n, err := s.countIn(ctx, m, 1); err != nil || n > 0 {
			return false
		}
	}
	return true
}
