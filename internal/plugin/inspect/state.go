package inspect

import (
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/preserve"
)

// State is the state of a node.
type State string

// The states of a node.
const (
	// Live: the Node exists, has its labels, and owns the record.
	Live State = "live"
	// Restoring: the Node exists, but does not have its saved labels yet.
	Restoring State = "restoring"
	// Away: the node has a record, but the Node does not exist.
	Away State = "away"
	// NeverSeen: the Node exists, and has no record.
	NeverSeen State = "never-seen"
	// Unreadable: the record cannot be parsed.
	Unreadable State = "unreadable"
)

// States has all states, by how much they need attention.
var States = []State{Unreadable, Restoring, NeverSeen, Away, Live}

// liveNode is the part of a Node that determines the state.
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
