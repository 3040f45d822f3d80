package ring

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/shardlease"
)

// tidy takes over uncertain Leases and deletes orphaned ones, until ctx is cancelled, while this
// member is the first ready one by name. One janitor is enough; if two members consider themselves
// the janitor, the preconditions of their writes let only one succeed. Only time measured by this
// process's own clock counts, so a wrong clock never ends the place of a live member.
func (m *Member) tidy(ctx context.Context) {
	var sightings shardlease.Sightings
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		now := time.Now()
		byState := map[shardlease.State][]*coordinationv1.Lease{}
		names := map[string]bool{}
		for _, s := range m.snapshot.Load().leases {
			names[s.Lease.Name] = true
			state := shardlease.StateOf(s.Lease, now.Sub(sightings.See(s.Lease, now)), m.leases.OrphanAfter)
			byState[state] = append(byState[state], s.Lease)
		}
		sightings.Keep(names)
		if ready := byState[shardlease.Ready]; len(ready) == 0 || ready[0].Name != m.config.Name {
			return
		}
		m.tidyAll(ctx, byState[shardlease.Uncertain], m.takeOver, "Took over the Lease of a silent member")
		m.tidyAll(ctx, byState[shardlease.Orphaned], m.remove, "Deleted the Lease of a dead member")
	}, m.leases.Period)
}

func (m *Member) tidyAll(ctx context.Context, leases []*coordinationv1.Lease, do func(context.Context, *coordinationv1.Lease) error, done string) {
	ctx, cancel := context.WithTimeout(ctx, shardlease.RenewPeriod(m.config.Duration))
	defer cancel()
	log := logf.FromContext(ctx).WithValues("ring", m.config.Group)
	for _, l := range leases {
		err := do(ctx, l)
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			// The member is back, or another janitor was faster: the watch will show.
		case err != nil && ctx.Err() == nil:
			log.Error(err, "Failed to tidy the Lease of a lost member, retrying", "member", l.Name)
		case err == nil:
			log.Info(done, "member", l.Name)
		}
	}
}

// takeOver makes this member the holder of the Lease of a silent member.
func (m *Member) takeOver(ctx context.Context, l *coordinationv1.Lease) error {
	return shardlease.TakeOver(ctx, m.config.Client, l, m.config.Name)
}

func (m *Member) remove(ctx context.Context, l *coordinationv1.Lease) error {
	return shardlease.Remove(ctx, m.config.Client, l)
}
