package ring

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// isFirst says whether this member is the first by name of those that are ready. One is enough to see to the others' Leases; if two
// think that they are it, the preconditions of their writes let one of them through.
func (m *Membership) isFirst(ready []*coordinationv1.Lease) bool {
	isReady := false
	for _, l := range ready {
		if l.Name < m.config.Identity {
			return false
		}
		isReady = isReady || l.Name == m.config.Identity
	}
	return isReady
}

// tidy takes over what is uncertain and deletes what is orphaned.
func (m *Membership) tidy(ctx context.Context, byState map[State][]*coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(ctx, m.renewPeriod())
	defer cancel()
	log := logf.FromContext(ctx).WithValues("ring", m.config.Ring)
	for state, do := range map[State]func(context.Context, *coordinationv1.Lease) error{Uncertain: m.takeOver, Orphaned: m.remove} {
		for _, l := range byState[state] {
			err := do(ctx, l)
			switch {
			case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
				// The member is there again, or another was faster: the watch will tell.
			case err != nil && ctx.Err() == nil:
				log.Error(err, "Seeing to the Lease of a lost member failed, trying again", "member", l.Name)
			case err == nil:
				log.Info("Saw to the Lease of a lost member", "member", l.Name, "state", state.String())
			}
		}
	}
}

// takeOver makes this member the holder of a Lease whose member is silent, conditional on its resourceVersion. The time is
// twice as long, so that a member that is slow and not gone has its place back later, when it is not.
func (m *Membership) takeOver(ctx context.Context, l *coordinationv1.Lease) error {
	now := metav1.Now()
	taken := l.DeepCopy()
	taken.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		HolderIdentity: m.config.Identity, LeaseDurationSeconds: int(2 * m.config.LeaseDuration / time.Second), AcquireTime: now, RenewTime: now,
	})
	if _, err := m.leases.Update(ctx, taken, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("taking over the Lease %q: %w", l.Name, err)
	}
	return nil
}

// remove deletes the Lease of a member that is dead for long, conditional on the Lease that was seen.
func (m *Membership) remove(ctx context.Context, l *coordinationv1.Lease) error {
	seen := &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}
	if err := m.leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: seen}); err != nil {
		return fmt.Errorf("deleting the Lease %q: %w", l.Name, err)
	}
	return nil
}
