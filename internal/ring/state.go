package ring

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// State is what a Lease says of its member.
type State int

const (
	// Ready members hold their Lease and renew it.
	Ready State = iota
	// Expired members have not renewed their Lease in time: for no longer than another lease duration.
	Expired
	// Uncertain members have not renewed it for longer. Nobody knows whether they are gone or the API server is: one of the others
	// is to take the Lease over, which shows that the API server works.
	Uncertain
	// Dead members have released their Lease, or it was taken over.
	Dead
	// Orphaned members have been dead for long: the Lease is to be deleted.
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

// IsMember says whether a member in this state has its place on the ring.
func (s State) IsMember() bool { return s <= Uncertain }

// StateOf returns the state of the member that a Lease is named as. Unchanged is how long the observer has seen the Lease as it
// is, by its own clock: the times in the Lease are of another machine's. A dead one is orphaned when it has been so for
// orphanAfter.
func StateOf(l *coordinationv1.Lease, unchanged, orphanAfter time.Duration) State {
	if holder := l.Spec.HolderIdentity; holder == nil || *holder != l.Name {
		if unchanged >= orphanAfter {
			return Orphaned
		}
		return Dead
	}
	duration := time.Duration(0)
	if l.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	switch {
	case unchanged < duration:
		return Ready
	case unchanged < 2*duration:
		return Expired
	}
	return Uncertain
}
