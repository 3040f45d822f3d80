package ring

import (
	"context"
	"slices"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/shardlease"
)

// snapshot is the state of the group's Leases at one time. It is immutable.
type snapshot struct {
	leases   []seen // by name, including this member's
	view     *View
	joined   bool
	syncedAt time.Time // see Member.SyncedAt
}

// seen is the Lease of a member, and whether the member serves.
type seen struct {
	shardlease.Seen

	serving bool
}

// refresh creates a snapshot from the Leases.
func (m *Member) refresh(ctx context.Context, _ time.Time, all []shardlease.Seen) {
	before := m.snapshot.Load()
	after := &snapshot{joined: before.joined, syncedAt: before.syncedAt}
	standbyKey, annotations := StandbyKey(m.config.GroupLabel), m.keeper.Annotations()
	var ready, unready []string
	for _, of := range all {
		l := of.Lease
		s := seen{Seen: of, serving: l.Annotations[standbyKey] != "true"}
		own := l.Name == m.config.Name
		if own {
			s.serving = annotations[standbyKey] != "true"
			after.joined = after.joined || m.keeper.HasStored(l)
			if sent, ok := m.keeper.SentAt(l); ok && sent.After(after.syncedAt) {
				after.syncedAt = sent
			}
		}
		switch {
		case !s.serving || !s.State.Member():
		case own || s.State == shardlease.Ready: // this member is alive, even if its renewals are late
			ready = append(ready, l.Name)
		default:
			unready = append(unready, l.Name)
		}
		after.leases = append(after.leases, s)
	}
	after.view = newView(m.config.Name, ready, unready, before.view)
	m.snapshot.Store(after)
	membersChanged := !slices.Equal(before.view.Members(), after.view.Members())
	if membersChanged {
		logf.FromContext(ctx).Info("Ring membership changed", "ring", m.config.Group, "members", after.view.Members())
	}
	if before.joined != after.joined || !before.syncedAt.Equal(after.syncedAt) || !slices.EqualFunc(before.leases, after.leases, sameLease) {
		m.changes.notify()
	}
	if membersChanged || !slices.Equal(before.view.Ready(), after.view.Ready()) {
		m.ringChanges.notify()
	}
}

func sameLease(a, b seen) bool {
	return a.Lease.UID == b.Lease.UID && a.Lease.ResourceVersion == b.Lease.ResourceVersion && a.State == b.State && a.serving == b.serving
}
