package assignment

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/sharding/internal/handover"
)

// object is what this process knows of one object besides the version that a watch shows. It is a
// value, and nothing that it refers to is changed. The zero value knows nothing.
type object struct {
	// found is the version that a resync has found to be misplaced and that no watch covers, or nil.
	found *metav1.PartialObjectMetadata
	// latest is the resourceVersion of the last version that this process has written or looked at, or
	// "" if no watch covers the object. A watch that has just started can show an older one.
	latest string
	// released is set while the children of the object must follow it.
	released release
	// life is the tracked state of the object with one UID. An object with the same name that is
	// created later has another one.
	life life
}

// life is the tracked state of an object with one UID.
type life struct {
	uid types.UID
	// drain is the drain that the watch shows, or the zero value.
	drain drain
	// taken is why this process has parked the object: because its shard is dead, or by force. It is ""
	// if the shard has released the object.
	taken handover.Why
	// children describe the move of its children before it.
	children childrenMove
}

// isOfDead reports whether this process has parked the object because its shard is dead.
func (l life) isOfDead() bool { return l.taken == handover.Dead }

// drain is the drain of an object to a shard.
type drain struct {
	to    string
	since time.Time
	// isLate is set once it was reported that the shard has not released the object in time.
	isLate bool
}

// childrenMove records how far the children of a parked object have moved.
type childrenMove struct {
	// to is the shard to which they move, or "" if no move has begun.
	to string
	// isDone is set when all of them have moved, and versions are their latest resourceVersions then, by
	// resource.
	isDone   bool
	versions map[string]string
}

// release records that a shard has released an object by removing both labels, as shards of protocol
// 1 do.
type release struct {
	uid types.UID
	// shard is the shard that had the object, or "" if no shard has released it.
	shard string
}

// isEmpty reports whether there is no state to remember.
func (o object) isEmpty() bool {
	l := o.life
	return o.found == nil && o.latest == "" && o.released.shard == "" && l.drain == (drain{}) && l.taken == "" && l.children.to == ""
}

// lifeOf returns the tracked state of the object with this UID.
func (o object) lifeOf(uid types.UID) life {
	if o.life.uid == uid {
		return o.life
	}
	return life{uid: uid}
}

// drained returns the object after the watch of drains has shown a version of it.
func (o object) drained(to string, uid types.UID, now time.Time) object {
	o.life = o.lifeOf(uid)
	if o.life.isOfDead() {
		return o // no shard has to release it
	}
	if o.life.drain.to != to || o.life.drain.since.IsZero() {
		o.life.drain = drain{to: to, since: now}
	}
	return o
}

// undrained returns the object after the watch of drains has shown that it is not drained any more.
func (o object) undrained(uid types.UID) object {
	if o.life.uid == uid {
		o.life.drain, o.life.taken = drain{}, ""
	}
	return o
}

// begun returns the move after an attempt to move the children to a shard.
func (c childrenMove) begun(to string) childrenMove {
	if c.to == to {
		return c
	}
	return childrenMove{to: to}
}

// failed returns the move after an attempt to move the children has failed.
func (c childrenMove) failed() childrenMove {
	c.isDone = false
	return c
}

// done returns the move after all children have moved to a shard, with these versions. It keeps later
// versions of an earlier attempt, which may have moved all the children there were. Results for another
// shard than the last one do not count.
func (c childrenMove) done(to string, versions map[string]string) childrenMove {
	if c.to != to {
		return c
	}
	versions = maps.Clone(versions)
	for resource, version := range c.versions {
		if isLater(version, versions[resource]) {
			versions[resource] = version
		}
	}
	c.isDone, c.versions = true, versions
	return c
}
