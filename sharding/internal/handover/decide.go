package handover

import "time"

// Object is the state of a main object. The zero value is an unassigned object.
type Object struct {
	// Shard and Drain are the values of its shard and drain labels, "" if they are missing.
	Shard, Drain string
	// DrainedFor is how long the sharder has seen the drain label with its current value.
	DrainedFor time.Duration
	// ChildrenMoved is set if all children are assigned to the shard that the object is moving to,
	// or if the resource has no controlled resources.
	ChildrenMoved bool
}

// Place is the shard to which the ring's table assigns an object.
type Place struct {
	// Now is the shard in the current table, Next the shard in the table without the silent shards.
	// Both are "" if the ring has no shard.
	Now, Next string
}

// Ring is the state of a ring, as far as it affects decisions.
type Ring struct {
	// Live reports whether a shard may act on its objects.
	Live func(shard string) bool
	// Silent reports whether a live shard has not renewed its Lease in time.
	Silent func(shard string) bool
	// DrainTimeout is how long a shard may take to release an object. If Force is set, the object is
	// then taken from it, which requires that a fence refuses its writes to objects without its label.
	DrainTimeout time.Duration
	Force        bool
	// IsFull is set if the maximum number of objects is in a hand-over.
	IsFull bool
}

// Action is an action on an object.
type Action int

const (
	// Keep does nothing.
	Keep Action = iota
	// Assign sets the shard label to Decision.Shard and removes the drain label.
	Assign
	// Drain sets the drain label to Decision.Shard. This asks the object's shard to release it, or
	// determines the target of a parked object.
	Drain
	// Undrain removes the drain label. The object stays at its shard.
	Undrain
	// Park removes the shard label and sets the drain label to Decision.Shard.
	Park
	// MoveChildren moves the children to Decision.Shard; a new decision must follow.
	MoveChildren
	// Wait requires a new decision when the shard acknowledges the drain, or after Decision.After.
	Wait
)

// String returns the name of the action in lower case.
func (a Action) String() string {
	return [...]string{"keep", "assign", "drain", "undrain", "park", "move children", "wait"}[a]
}

// Why is the reason for a move, a label value of the metric of moves. It is "" for a first
// assignment.
type Why string

const (
	// Dead means that the shard is gone.
	Dead Why = "dead"
	// Released means that the shard has acknowledged the drain.
	Released Why = "released"
	// Balance means that the table assigns the object to another shard.
	Balance Why = "balance"
	// Forced means that the shard did not acknowledge the drain in time.
	Forced Why = "forced"
)

// Decision is an action on an object and the reason for it.
type Decision struct {
	Action Action
	// Shard is the shard that gets the object.
	Shard string
	Why   Why
	// After is the delay before the next decision at the latest. It is zero if only an event can
	// change the decision.
	After time.Duration
	// IsLate is set if the shard has not acknowledged the drain in time.
	IsLate bool
}

// Decide returns the action on an object.
//
// An object leaves a live shard only after the shard has acknowledged the drain, because the shard
// may be working on the object, or by force. An object of a dead shard, or one that is taken by
// force, is assigned at once or, if it can have children, parked: its shard could still work on it
// while they move. The children move while the object is parked, so that no shard ever sees a main
// object without its children.
func Decide(o Object, p Place, r Ring) Decision {
	switch {
	case o.Shard == "" && o.Drain == "":
		return toward(Assign, target(o, p, r), "")
	case o.Shard == "":
		return decideParked(o, p, r)
	case !r.Live(o.Shard) && o.ChildrenMoved:
		return toward(Assign, target(o, p, r), Dead)
	case !r.Live(o.Shard):
		return toward(Park, target(o, p, r), Dead)
	}
	return decideHeld(o, p, r)
}

// target returns the shard for a new or moving object. It returns a silent shard only if there is
// no other shard.
func target(o Object, p Place, r Ring) string {
	if p.Now != "" && p.Now != o.Shard && r.Silent(p.Now) {
		return p.Next
	}
	return p.Now
}

// toward returns a decision for a shard, or Keep if there is no shard.
func toward(a Action, shard string, why Why) Decision {
	if shard == "" {
		return Decision{}
	}
	return Decision{Action: a, Shard: shard, Why: why}
}

// decideParked decides about an object between two shards.
func decideParked(o Object, p Place, r Ring) Decision {
	switch {
	case !r.Live(o.Drain):
		return toward(Drain, target(o, p, r), Released)
	case o.ChildrenMoved:
		return toward(Assign, o.Drain, Released)
	}
	return toward(MoveChildren, o.Drain, Released)
}

// decideHeld decides about an object of a live shard.
func decideHeld(o Object, p Place, r Ring) Decision {
	to := target(o, p, r)
	switch {
	case to == "":
		return Decision{}
	case to == o.Shard && o.Drain == "":
		return Decision{}
	case to == o.Shard:
		return Decision{Action: Undrain}
	case o.Drain == "" && r.IsFull:
		return Decision{Action: Wait, Shard: to, Why: Balance}
	case o.Drain != to:
		return toward(Drain, to, Balance)
	}
	left := r.DrainTimeout - o.DrainedFor
	switch {
	case left > 0:
		return Decision{Action: Wait, Shard: to, Why: Balance, After: left}
	case r.Force && o.ChildrenMoved:
		return Decision{Action: Assign, Shard: to, Why: Forced, IsLate: true}
	case r.Force:
		return Decision{Action: Park, Shard: to, Why: Forced, IsLate: true}
	}
	return Decision{Action: Wait, Shard: to, Why: Balance, IsLate: true}
}
