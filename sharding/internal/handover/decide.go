package handover

import "time"

// Object is what decides about a main object. The zero value is an object that nobody has.
type Object struct {
	// Shard and Drain are the values of its labels, "" if they are missing.
	Shard, Drain string
	// DrainedFor is for how long the label Drain has been seen to ask for the same shard.
	DrainedFor time.Duration
	// ChildrenMoved reports whether no child is left at another shard than the one that the object goes
	// to. It is true if the resource has no controlled resources.
	ChildrenMoved bool
}

// Place is where an object belongs by the table of its ring.
type Place struct {
	// Now is the shard by the table, and Next the one by the table without silent shards. Both are "" if
	// the ring has no shard.
	Now, Next string
}

// Ring is what decides about every object of a ring.
type Ring struct {
	// Live reports whether a shard may act on its objects.
	Live func(shard string) bool
	// Silent reports whether a live shard has not renewed its Lease in time.
	Silent func(shard string) bool
	// DrainTimeout is how long a shard may take to give an object away. Force says that the object is
	// taken from it then.
	DrainTimeout time.Duration
	Force        bool
	// IsFull reports whether as many objects are in a hand-over as may be.
	IsFull bool
}

// Action is what to do about an object.
type Action int

const (
	// Keep means: nothing.
	Keep Action = iota
	// Assign means: set the label shard to Decision.Shard and remove the label drain.
	Assign
	// Drain means: set the label drain to Decision.Shard, which asks the object's shard to give it away,
	// or says where a parked object goes.
	Drain
	// Undrain means: remove the label drain. The object stays where it is.
	Undrain
	// MoveChildren means: the children must be moved to Decision.Shard, and then decided again.
	MoveChildren
	// Wait means: decide again when the shard acknowledges, or after Decision.After.
	Wait
)

// String returns the action's name in lower case.
func (a Action) String() string {
	return [...]string{"keep", "assign", "drain", "undrain", "move children", "wait"}[a]
}

// Why is why an object moves, as the metric of moves says it. It is "" for a first assignment.
type Why string

const (
	// Dead means that the shard is gone.
	Dead Why = "dead"
	// Released means that the shard has acknowledged the drain.
	Released Why = "released"
	// Balance means that the table gives the object to another shard.
	Balance Why = "balance"
	// Forced means that the shard did not acknowledge in time.
	Forced Why = "forced"
)

// Decision is what to do about an object, and why.
type Decision struct {
	Action Action
	// Shard is who gets the object.
	Shard string
	Why   Why
	// After is when to decide again at the latest, zero if only an event can change the decision.
	After time.Duration
	// IsLate reports that the shard has not acknowledged the drain in time.
	IsLate bool
}

// Decide returns what to do about an object.
//
// An object whose shard lives leaves it only by an acknowledgement: the shard may be at work on it. One
// that is at no shard, or at one that is gone, is assigned at once, but for its children, which move
// before it: no shard may see a main object without them.
func Decide(o Object, p Place, r Ring) Decision {
	switch {
	case o.Shard == "" && o.Drain == "":
		return toward(Assign, target(o, p, r), "")
	case o.Shard == "":
		return decideParked(o, p, r)
	case !r.Live(o.Shard):
		return afterChildren(o, target(o, p, r), Dead)
	}
	return decideHeld(o, p, r)
}

// target returns the shard that gets an object which has to move or is new. A silent shard gets it only if
// there is no other one.
func target(o Object, p Place, r Ring) string {
	if p.Now != "" && p.Now != o.Shard && r.Silent(p.Now) {
		return p.Next
	}
	return p.Now
}

// toward returns a decision for a shard. Without one, nothing is written.
func toward(a Action, shard string, why Why) Decision {
	if shard == "" {
		return Decision{}
	}
	return Decision{Action: a, Shard: shard, Why: why}
}

// afterChildren returns the decision to assign an object to a shard when its children are there.
func afterChildren(o Object, shard string, why Why) Decision {
	if !o.ChildrenMoved {
		return toward(MoveChildren, shard, why)
	}
	return toward(Assign, shard, why)
}

// decideParked decides about an object that its shard has given away.
func decideParked(o Object, p Place, r Ring) Decision {
	if r.Live(o.Drain) {
		return afterChildren(o, o.Drain, Released)
	}
	return toward(Drain, target(o, p, r), Released)
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
	case r.Force:
		return Decision{Action: Assign, Shard: to, Why: Forced, IsLate: true}
	}
	return Decision{Action: Wait, Shard: to, Why: Balance, IsLate: true}
}
