package shardlease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// State is what a Lease shows about its member.
type State int

const (
	// Ready members hold their Lease and renew it.
	Ready State = iota
	// Expired members have not renewed their Lease for one lease duration, but for less than two.
	Expired
	// Uncertain members have not renewed it for longer. Either the member or the API server is
	// gone: a peer that takes the Lease over shows that the API server works.
	Uncertain
	// Dead members have released their Lease, or a peer has taken it over.
	Dead
	// Orphaned members have been dead for so long that their Lease can be deleted.
	Orphaned
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Ready:
		return "ready"
	case Expired:
		return "expired"
	case Uncertain:
		return "uncertain"
	case Dead:
		return "dead"
	case Orphaned:
		return "orphaned"
	}
	return "unknown"
}

// Member reports whether the replica belongs to the group in this state: nobody has shown that it
// is gone.
func (s State) Member() bool { return s <= Uncertain }

// StateOf returns the state of the member that a Lease is named like. Unchanged is how long the
// observer has seen the Lease as it is, by its own clock: the times in the Lease come from another
// machine. A dead member is orphaned after orphanAfter.
func StateOf(l *coordinationv1.Lease, unchanged, orphanAfter time.Duration) State {
	if Holder(l) != l.Name {
		if unchanged >= orphanAfter {
			return Orphaned
		}
		return Dead
	}
	switch duration := Duration(l); {
	case unchanged < duration:
		return Ready
	case unchanged < 2*duration:
		return Expired
	}
	return Uncertain
}

// Holder returns the holder of a Lease, or "" if it has none.
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Duration returns how long a Lease lasts without a renewal. It is zero if the Lease does not say.
func Duration(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}
