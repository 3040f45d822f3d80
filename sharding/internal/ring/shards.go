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

// State is what a Lease shows about its shard. The states are those of [shardlease.State], and
// [Leaving].
type State string

// The states.
const (
	Ready     State = "ready"
	Leaving   State = "leaving" // ready, and wants to give its objects away
	Expired   State = "expired"
	Uncertain State = "uncertain"
	Dead      State = "dead"
	Orphaned  State = "orphaned"
)

// Live reports whether a shard in this state may act on its objects: nobody has shown that it is gone.
func (s State) Live() bool { return s != Dead && s != Orphaned }

// Silent reports whether the shard has not renewed its Lease in time: it keeps its objects and gets no
// new ones.
func (s State) Silent() bool { return s == Expired || s == Uncertain }

// Shard is one shard of a ring as its Lease shows it.
type Shard struct {
	Name  string
	State State
	// Joined is when this process first saw the shard live without a break.
	Joined time.Time
	// Lease is nil if it has vanished: then the shard is uncertain.
	Lease *coordinationv1.Lease
}

// Rejected is a Lease that does not count, and why.
type Rejected struct{ Name, Reason, Message string }

// The reasons, which are those of the condition ShardsAccepted.
const (
	InvalidShardName = "InvalidShardName"
	NameConflict     = "NameConflict"
	TooManyShards    = "TooManyShards"
)

// Shards returns the shards of a ring, by name, and the Leases that do not count. If there are too many,
// those count that live, among these the ones that are in the table, and of the others the oldest.
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
			rejected = append(rejected, Rejected{twin.Lease.Name, NameConflict, fmt.Sprintf("the Lease in namespace %s has the name of an older one: give each shard a name of its own", twin.Lease.Namespace)})
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
		rejected = append(rejected, Rejected{s.Name, TooManyShards, "a ring can have 256 shards"})
	}
	shards = shards[:v1alpha1.MaxShards]
	slices.SortFunc(shards, byName)
	return shards, rejected
}

// objection returns why a Lease does not count in a ring whose keys have a prefix, or "".
func objection(l *coordinationv1.Lease, prefix v1alpha1.Prefix) (reason, message string) {
	by, holder := shardlease.Holder(l), holderFor(prefix)
	problems := validation.IsValidLabelValue(l.Name)
	switch {
	case len(problems) > 0:
		return InvalidShardName, "the name of a Lease " + problems[0] + ": it is the value of a label on each object of the shard"
	case l.Name == holder:
		return InvalidShardName, "that is who holds the Leases of dead shards: give the shard another name"
	case by != "" && by != l.Name && by != holder:
		return NameConflict, fmt.Sprintf("it is held by %q, and a shard holds the Lease of its own name", by)
	}
	return "", ""
}

// created returns when the Lease of a shard was created, zero if it is gone.
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

// states are those that a Lease shows.
var states = map[shardlease.State]State{
	shardlease.Ready: Ready, shardlease.Expired: Expired, shardlease.Uncertain: Uncertain, shardlease.Dead: Dead, shardlease.Orphaned: Orphaned,
}

func stateOf(seen shardlease.Seen, prefix v1alpha1.Prefix) State {
	state := states[seen.State]
	if state == Ready && seen.Lease.Annotations[prefix.LeavingAnnotation()] == "true" {
		return Leaving
	}
	return state
}
