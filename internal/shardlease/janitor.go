package shardlease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// tidy takes over the Leases that are uncertain and deletes those that are orphaned, until ctx is
// cancelled, while this member is the first by name of those that are ready. One janitor is enough;
// if two members think that they are it, the preconditions of their writes let one of them through.
// Only time that passes on the own clock counts: no clock that is off ends a live member's place.
func (m *Member) tidy(ctx context.Context) {
	var sightings Sightings
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		now := time.Now()
		byState := map[State][]*coordinationv1.Lease{}
		names := map[string]bool{}
		for _, s := range m.snapshot.Load().leases {
			names[s.lease.Name] = true
			state := StateOf(s.lease, now.Sub(sightings.See(s.lease, now)), m.config.orphanAfter())
			byState[state] = append(byState[state], s.lease)
		}
		sightings.Keep(names)
		if ready := byState[Ready]; len(ready) == 0 || ready[0].Name != m.config.Name {
			return
		}
		m.tidyAll(ctx, byState[Uncertain], m.takeOver, "Took over the Lease of a silent member")
		m.tidyAll(ctx, byState[Orphaned], m.remove, "Deleted the Lease of a dead member")
	}, m.config.retryPeriod())
}

func (m *Member) tidyAll(ctx context.Context, leases []*coordinationv1.Lease, do func(context.Context, *coordinationv1.Lease) error, done string) {
	ctx, cancel := context.WithTimeout(ctx, m.config.renewPeriod())
	defer cancel()
	log := logf.FromContext(ctx).WithValues("ring", m.config.Group)
	for _, l := range leases {
		err := do(ctx, l)
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			// The member is back, or another janitor was faster: the watch shows which.
		case err != nil && ctx.Err() == nil:
			log.Error(err, "Tidying the Lease of a lost member failed, retrying", "member", l.Name)
		case err == nil:
			log.Info(done, "member", l.Name)
		}
	}
}

// takeOver makes this member the holder of a Lease whose member is silent, conditional on its
// resourceVersion. It lasts twice as long, so that a member that was slow and not gone gets its
// place back when it has recovered.
func (m *Member) takeOver(ctx context.Context, l *coordinationv1.Lease) error {
	now := time.Now()
	taken := l.DeepCopy()
	hold(taken, m.config.Name, 2*m.config.Duration, now)
	taken.Spec.AcquireTime = new(metav1.NewMicroTime(now))
	if _, err := m.config.leases().Update(ctx, taken, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("taking over the Lease %q: %w", l.Name, err)
	}
	return nil
}

// remove deletes the Lease of a dead member, conditional on its uid and resourceVersion.
func (m *Member) remove(ctx context.Context, l *coordinationv1.Lease) error {
	seen := &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}
	if err := m.config.leases().Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: seen}); err != nil {
		return fmt.Errorf("deleting the Lease %q: %w", l.Name, err)
	}
	return nil
}
