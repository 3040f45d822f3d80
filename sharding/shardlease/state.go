package shardlease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// State is the state of a shard, as derived from its Lease.
type State int

const (
	// Ready shards hold their Lease and renew it.
	Ready State = iota
	// Expired shards have not renewed their Lease for one lease duration, but for less than two.
	Expired
	// Uncertain shards have not renewed it for longer. Either the shard or the API server is down;
	// a successful takeover shows that the API server works.
	Uncertain
	// Dead shards have released their Lease, or another client has taken it over.
	Dead
	// Orphaned shards have been dead for so long that their Lease can be deleted.
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

// Member reports whether the shard belongs to its ring in this state, that is, unless it is known
// to be dead.
func (s State) Member() bool { return s <= Uncertain }

// StateOf returns the state of the shard whose Lease this is. The argument unchanged is how long
// the observer has seen the Lease unchanged, by its own clock; the times in the Lease are not used
// because they come from another machine. A dead shard is orphaned after orphanAfter.
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

// Holder returns the holder of a Lease, or "" if there is no holder.
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Duration returns how long a Lease is valid without a renewal. It returns zero if the Lease does
// not specify a duration.
func Duration(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}
