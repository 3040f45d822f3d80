package ring

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

// State is the state of a shard as derived from its Lease: one of the states of [shardlease.State],
// or [Leaving].
type State string

// The states of a shard.
const (
	Ready     State = "ready"
	Leaving   State = "leaving" // ready, and asks the sharder to move its objects
	Expired   State = "expired"
	Uncertain State = "uncertain"
	Dead      State = "dead"
	Orphaned  State = "orphaned"
)

// Live reports whether a shard in this state may act on its objects, that is, unless it is known to
// be dead.
func (s State) Live() bool { return s != Dead && s != Orphaned }

// Silent reports whether the shard has not renewed its Lease in time. A silent shard keeps its
// objects but gets no new ones.
func (s State) Silent() bool { return s == Expired || s == Uncertain }

// Shard is a shard of a ring as derived from its Lease.
type Shard struct {
	Name  string
	State State
	// Joined is when this process first observed the shard alive without interruption, or later,
	// when its pod was last seen not ready.
	Joined time.Time
	// Unready is set if the pod of a new shard is not ready. The shard takes no slots from others.
	Unready bool
	// Lease is nil if it was deleted; the shard is then uncertain.
	Lease *coordinationv1.Lease
}

// Rejected is a Lease that is not accepted, and the reason.
type Rejected struct{ Name, Reason, Message string }

// The reasons of Rejected, which are also reasons of the condition ShardsAccepted.
const (
	InvalidShardName = "InvalidShardName"
	NameConflict     = "NameConflict"
	TooManyShards    = "TooManyShards"
)

// Shards returns the shards of a ring and the Leases that are not accepted, each sorted by name. If
// there are too many shards, live shards come first, then shards in the table, then the oldest.
func Shards(o Observation, prefix v1alpha1.Prefix, inTable []string) (shards []Shard, rejected []Rejected) {
	for _, name := range o.Vanished {
		shards = append(shards, Shard{Name: name, State: Uncertain})
	}
	for _, seen := range o.Leases {
		name := seen.Lease.Name
		if reason, message := objection(seen.Lease, prefix); reason != "" {
			rejected = append(rejected, Rejected{name, reason, message})
			continue
		}
		shards = append(shards, Shard{Name: name, State: stateOf(seen, prefix), Joined: o.Joined[name], Lease: seen.Lease})
	}
	for _, twin := range o.Twins {
		if isHeld(twin) {
			rejected = append(rejected, Rejected{twin.Lease.Name, NameConflict, fmt.Sprintf("the Lease in namespace %s has the same name as an older one: give each shard a unique name", twin.Lease.Namespace)})
		}
	}
	byName := func(a, b Shard) int { return cmp.Compare(a.Name, b.Name) }
	if len(shards) <= v1alpha1.MaxShards {
		slices.SortFunc(shards, byName)
		return shards, rejected
	}
	isIn := func(s Shard) bool { return slices.Contains(inTable, s.Name) }
	slices.SortFunc(shards, func(a, b Shard) int {
		return cmp.Or(-compareBool(a.State.Live(), b.State.Live()), -compareBool(isIn(a), isIn(b)), created(a).Compare(created(b)), byName(a, b))
	})
	for _, s := range shards[v1alpha1.MaxShards:] {
		rejected = append(rejected, Rejected{s.Name, TooManyShards, "a ring can have at most 256 shards"})
	}
	shards = shards[:v1alpha1.MaxShards]
	slices.SortFunc(shards, byName)
	return shards, rejected
}

// objection returns the reason why a Lease is not accepted in a ring whose keys have a prefix, or
// "".
func objection(l *coordinationv1.Lease, prefix v1alpha1.Prefix) (reason, message string) {
	by, holder := shardlease.Holder(l), holderFor(prefix)
	problems := validation.IsValidLabelValue(l.Name)
	switch {
	case len(problems) > 0:
		return InvalidShardName, "the name of a Lease " + problems[0] + ": it is the value of a label on each object of the shard"
	case l.Name == holder:
		return InvalidShardName, "this name is reserved for the holder of dead shards' Leases: give the shard another name"
	case by != "" && by != l.Name && by != holder:
		return NameConflict, fmt.Sprintf("it is held by %q, but a shard must hold the Lease of its own name", by)
	}
	return "", ""
}

// created returns when the Lease of a shard was created, or zero if the Lease was deleted.
func created(s Shard) time.Time {
	if s.Lease == nil {
		return time.Time{}
	}
	return s.Lease.CreationTimestamp.Time
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// states maps the states of Leases to the states of shards.
var states = map[shardlease.State]State{
	shardlease.Ready: Ready, shardlease.Expired: Expired, shardlease.Uncertain: Uncertain, shardlease.Dead: Dead, shardlease.Orphaned: Orphaned,
}

func stateOf(seen shardlease.Seen, prefix v1alpha1.Prefix) State {
	state := states[seen.State]
	if state == Ready && isLeaving(seen.Lease, prefix) {
		return Leaving
	}
	return state
}

// isLeaving reports whether a shard has asked the sharder to move its objects. A released Lease still
// shows that.
func isLeaving(l *coordinationv1.Lease, prefix v1alpha1.Prefix) bool {
	return l.Annotations[prefix.LeavingAnnotation()] == "true"
}
