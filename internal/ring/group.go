package ring

import (
	"context"
	"slices"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/shardlease"
)

// snapshot is what a look at the Leases of the group has found. It is immutable.
type snapshot struct {
	leases []seen // by name, the own one too
	view   *View
	joined bool
	heard  time.Time // see Member.Heard
}

// seen is the Lease of a member, and whether the member serves.
type seen struct {
	shardlease.Seen

	serving bool
}

// look makes a snapshot of the Leases.
func (m *Member) look(ctx context.Context, _ time.Time, all []shardlease.Seen) {
	before := m.snapshot.Load()
	after := &snapshot{joined: before.joined, heard: before.heard}
	standbyKey, annotations := StandbyKey(m.config.GroupLabel), m.keeper.Annotations()
	var ready, unready []string
	for _, of := range all {
		l := of.Lease
		s := seen{Seen: of, serving: l.Annotations[standbyKey] != "true"}
		own := l.Name == m.config.Name
		if own {
			s.serving = annotations[standbyKey] != "true"
			after.joined = after.joined || m.keeper.HasStored(l)
			if sent, ok := m.keeper.SentAt(l); ok && sent.After(after.heard) {
				after.heard = sent
			}
		}
		switch {
		case !s.serving || !s.State.Member():
		case own || s.State == shardlease.Ready: // this member is alive, however late its renewals are
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
	if before.joined != after.joined || !before.heard.Equal(after.heard) || !slices.EqualFunc(before.leases, after.leases, sameLease) {
		m.changes.tell()
	}
	if membersChanged || !slices.Equal(before.view.Ready(), after.view.Ready()) {
		m.ringChanges.tell()
	}
}

func sameLease(a, b seen) bool {
	return a.Lease.UID == b.Lease.UID && a.Lease.ResourceVersion == b.Lease.ResourceVersion && a.State == b.State && a.serving == b.serving
}
