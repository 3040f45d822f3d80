package assignment

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/internal/place"
)

// action is what a step does.
type action int

const (
	// rest does nothing: the object is where it belongs.
	rest action = iota
	// wait does nothing until an event or the time of the step.
	wait
	// catchUp waits for a version that is not older than the latest one.
	catchUp
	// end finishes pending work on an object that no watch shows any more.
	end
	// leave removes the metadata of an object whose namespace does not belong to the ring.
	leave
	// follow assigns a child to the shard of its controller.
	follow
	// assign, startDrain, undrain, park and moveChildren are the actions of package handover.
	assign
	startDrain
	undrain
	park
	moveChildren
	// awaitMove waits until another object has moved.
	awaitMove
	// awaitWrites waits until earlier writes to the children have arrived.
	awaitWrites
	// reportLate reports that a shard has not released an object in time.
	reportLate
)

// premise is what a live read must confirm before the write of a step.
type premise int

const (
	none premise = iota
	// isGone means that the shard of the object does not hold its Lease.
	isGone
	// isOutside means that the namespace of the object does not belong to the ring.
	isOutside
	// isFenced means that the API server refuses requests of the shard for objects of other shards.
	isFenced
)

// step is the next action on an object.
type step struct {
	do      action
	premise premise
	// to is the shard that gets the object, and why the reason for a move.
	to  string
	why handover.Why
	// versions are the versions of the children that the next shard must have seen.
	versions map[string]string
	// after is the delay before the next step at the latest. It is zero if only an event can change the
	// step.
	after time.Duration
}

// situation is what a step depends on besides the object.
type situation struct {
	view *view
	now  time.Time
	// isFull is set if the maximum number of other objects is in a hand-over.
	isFull bool
	// settled is when all writes to the children of the object that were sent before have arrived.
	settled time.Time
}

// next returns the next step for an object and what is known of it afterwards. The argument m is the
// newest version that is known, or nil if the object is at rest or gone. It is pure.
func (k *kind) next(m *metav1.PartialObjectMetadata, o object, s situation) (step, object) {
	switch {
	case m == nil:
		return step{do: end}, o
	case !s.view.isLabelled(k.resource):
		return step{do: wait}, o
	case o.latest != "" && isLater(o.latest, m.ResourceVersion):
		return step{do: catchUp}, o
	case !s.view.selects(k.mapping, m) && m.Labels[k.keys.shard]+m.Labels[k.keys.drain] == "":
		return step{do: rest}, o
	}
	o.latest = m.ResourceVersion
	var next step
	switch {
	case !s.view.selects(k.mapping, m):
		return step{do: leave, premise: isOutside}, o
	case k.main == nil:
		next = step{do: follow}
	default:
		next, o = k.nextOfMain(m, o, s)
	}
	if shard := m.Labels[k.keys.shard]; next.do != rest && shard != "" && !s.view.live[shard] {
		next.premise = isGone
	}
	return next, o
}

// nextOfMain returns the next step for a main object.
func (k *kind) nextOfMain(m *metav1.PartialObjectMetadata, o object, s situation) (step, object) {
	o.life = o.lifeOf(m.UID)
	if s.view.live[m.Labels[k.keys.shard]] {
		o.life.taken, o.life.children = "", childrenMove{} // the shard can create more children
	}
	d := k.decide(m, o.life, s)
	next := step{to: d.Shard, why: d.Why}
	if d.Why == handover.Forced {
		next.premise = isFenced
	}
	switch d.Action {
	case handover.Keep:
		next.do = rest
		if to, ok := m.Labels[k.keys.drain]; ok && to == "" {
			next.do = undrain // another client has set an empty drain label
		}
	case handover.Assign:
		next.do, next.versions = assign, o.life.children.versions
		if o.life.taken != "" {
			next.why = o.life.taken
		}
	case handover.Drain:
		next.do = startDrain
	case handover.Undrain:
		next.do = undrain
	case handover.Park:
		next.do, o.life.taken = park, d.Why
		if d.Why == handover.Dead {
			o.life.drain = drain{}
		}
	case handover.MoveChildren:
		next = nextOfChildren(&o.life.children, next, s)
	case handover.Wait:
		next.do, next.after = await(&o.life, d)
	}
	return next, o
}

// nextOfChildren returns the next step for an object whose children must move. It waits while earlier
// writes to them may still arrive.
func nextOfChildren(c *childrenMove, next step, s situation) step {
	if left := s.settled.Sub(s.now); left > 0 {
		return step{do: awaitWrites, to: next.to, why: next.why, after: left}
	}
	next.do, *c = moveChildren, c.begun(next.to)
	return next
}

// await returns the action for an object that waits, and the time until its next step.
func await(l *life, d handover.Decision) (action, time.Duration) {
	switch {
	case d.After > 0:
		return wait, d.After
	case !d.IsLate:
		return awaitMove, 0
	case l.drain.since.IsZero() || l.drain.isLate:
		return wait, 0
	}
	l.drain.isLate = true
	return reportLate, 0
}

// decide returns the decision about a main object.
func (k *kind) decide(m *metav1.PartialObjectMetadata, l life, s situation) handover.Decision {
	o := handover.Object{Shard: m.Labels[k.keys.shard], Drain: m.Labels[k.keys.drain], ChildrenMoved: len(k.main.ControlledResources) == 0}
	if o.Drain != "" && l.drain.to == o.Drain {
		o.DrainedFor = s.now.Sub(l.drain.since)
	}
	v, spec := s.view, s.view.ring.Spec.Handover
	rules := handover.Ring{
		Live: func(name string) bool { return v.live[name] }, Silent: func(name string) bool { return v.table.Silent[name] },
		Force: place.MayForce(v.ring, *k.main), IsFull: s.isFull,
	}
	if spec.DrainTimeout != nil {
		rules.DrainTimeout = spec.DrainTimeout.Duration
	}
	belongs := v.table.Of(place.Key(*k.main, m.Labels, place.Main(k.mapping.GroupVersionKind.GroupKind(), m.Namespace, m.Name)))
	d := handover.Decide(o, belongs, rules)
	if d.Action == handover.MoveChildren && l.children.isDone && l.children.to == d.Shard {
		o.ChildrenMoved = true
		return handover.Decide(o, belongs, rules)
	}
	return d
}

// nextOfChild returns the shard to which a child must be assigned, or "" if it is where it belongs.
// It returns isMoving if its controller has no live shard, and is moving or waiting itself. The
// argument hasDrain is set if the child has a drain label, from when its resource was a main resource.
func nextOfChild(shard string, hasDrain bool, ofController string, v *view) (to string, isMoving bool) {
	switch {
	case ofController != "" && ofController == shard && !hasDrain:
		return "", false
	case ofController == "" || !v.live[ofController]:
		return "", true
	}
	return ofController, false
}
