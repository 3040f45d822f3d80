package assignment

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// life is what is known of the object with one UID. An object with the same name that is created
	// later has another one.
	life life
}

// life is what is known of an object with one UID.
type life struct {
	uid types.UID
	// drain is the drain that the watch shows, or the zero value.
	drain drain
	// former is the shard from which this process takes the object, or "" if another process did. Until
	// the object moves, no other process moves its children. isOfDead is set if the shard was dead.
	former   string
	isOfDead bool
	// children describe the move of its children before it.
	children childrenMove
}

// drain is the drain of an object to a shard.
type drain struct {
	to    string
	since time.Time
	// isLate is set once it was reported that the shard has not released the object in time.
	isLate bool
}

// childrenMove describes where the children of an object are that moves.
type childrenMove struct {
	// to is the target of the last attempt to move them, or "" if there was none.
	to string
	// isScattered is set if children may be elsewhere than at their former shard, because an attempt
	// failed or an earlier one had another target.
	isScattered bool
	// at is the shard to which all of them have moved, or "", and versions are their latest
	// resourceVersions there, by resource.
	at       string
	versions map[string]string
}

// release records that a shard has released an object by removing both labels, as shards of protocol
// 1 do.
type release struct {
	uid types.UID
	// shard is the shard that had the object, or "" if no shard has released it.
	shard string
}

// isEmpty reports whether nothing is known that must be remembered.
func (o object) isEmpty() bool {
	l := o.life
	return o.found == nil && o.latest == "" && o.released.shard == "" && l.drain == (drain{}) && l.former == "" && l.children.to+l.children.at == "" && !l.children.isScattered
}

// lifeOf returns what is known of the object with this UID.
func (o object) lifeOf(uid types.UID) life {
	if o.life.uid == uid {
		return o.life
	}
	return life{uid: uid}
}

// drained returns the object after the watch of drains has shown a version of it.
func (o object) drained(to string, uid types.UID, now time.Time) object {
	o.life = o.lifeOf(uid)
	if o.life.drain.to != to || o.life.drain.since.IsZero() {
		o.life.drain = drain{to: to, since: now}
	}
	return o
}

// taken returns the object after this process has begun to take it from a shard, which may be dead.
func (o object) taken(shard string, isDead bool, uid types.UID) object {
	o.life = o.lifeOf(uid)
	if shard != "" {
		o.life.former, o.life.isOfDead = shard, isDead
	}
	return o
}

// undrained returns the object after the watch of drains has shown that it is not drained any more.
func (o object) undrained(uid types.UID) object {
	if o.life.uid == uid {
		o.life.drain, o.life.former, o.life.isOfDead = drain{}, "", false
	}
	return o
}

// attempt returns the move of children after an attempt to move them to a shard.
func (c childrenMove) attempt(to string) childrenMove {
	c.isScattered = c.isScattered || c.to != "" && c.to != to
	c.to = to
	return c
}

// moved returns the move of children after all of them have moved to a shard, with these versions. It
// keeps later versions of an earlier attempt, which may have moved all the children there were.
func (c childrenMove) moved(to string, versions map[string]string) childrenMove {
	versions = maps.Clone(versions)
	if c.at == to {
		for resource, version := range c.versions {
			if isLater(version, versions[resource]) {
				versions[resource] = version
			}
		}
	}
	c.at, c.versions = to, versions
	return c
}

// failed returns the move of children after an attempt has failed. It is unknown which of them have
// moved, because a response may have been lost.
func (c childrenMove) failed() childrenMove {
	c.isScattered = true
	return c
}
