package inspect

import (
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/preserve"
)

// State is what a node is in.
type State string

// The states of a node.
const (
	// Live: there is a Node, and it has its labels: they are on record.
	Live State = "live"
	// Restoring: there is a Node that does not have its saved labels yet.
	Restoring State = "restoring"
	// Away: there is no Node, but a record.
	Away State = "away"
	// NeverSeen: there is a Node and no record.
	NeverSeen State = "never-seen"
	// Unreadable: there is a record, and it cannot be read.
	Unreadable State = "unreadable"
)

// States are all states, the one that needs people first.
var States = []State{Unreadable, Restoring, NeverSeen, Away, Live}

// liveNode is what matters of a Node for the state.
type liveNode struct {
	isThere bool
	uid     types.UID
	marker  string
}

func stateOf(n liveNode, saved Saved) State {
	switch {
	case saved.Unreadable != nil:
		return Unreadable
	case !n.isThere:
		return Away
	case saved.Record == nil:
		return NeverSeen
	case preserve.Owned(*saved.Record, n.uid, n.marker):
		return Live
	}
	return Restoring
}
