package simulation

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// ownership is who owns objects, so that the garbage collector deletes them with their owner.
// Placement itself sets no owners, but another program may.
type ownership int

const (
	unowned        ownership = iota
	ownedByPods              // Leases and contracts, by the pod that has the name when they are created
	ownedByObjects           // contracts by the first resource, and the second resource by the first one
)

// collector is the garbage collector of Kubernetes. It looks for objects without an owner in caches
// of its own, confirms that by live reads, and deletes with the UID as the precondition.
type collector struct {
	*simulation
	cache
}

// next takes one turn.
func (c *collector) next() {
	switch c.choices.Next(3) {
	case 0:
		c.sync(c.world, kind(c.choices.Next(int(kinds))), 1+c.choices.Next(8))
	case 1:
		c.syncAll(c.world)
	}
	c.collect(kind(c.choices.Next(int(podKind))), c.choices.Next(pods))
}

// everything collects all garbage.
func (c *collector) everything() {
	c.syncAll(c.world)
	for k := range podKind {
		for key := range pods {
			c.collect(k, key)
		}
	}
}

// collect deletes an object if its owner is gone. That write may arrive late, when the object has
// changed, or another one has its name.
func (c *collector) collect(k kind, key int) {
	at := c.cached[k][key]
	if at == 0 {
		return
	}
	uid, owner := ownerOf(c.world.log[k][at-1].object)
	if owner == "" || c.has(owner) {
		return
	}
	if now, owner := ownerOf(c.world.stored[k][key]); now != uid || c.world.exists(owner) {
		return
	}
	remove := func() { c.remove(k, key, uid) }
	if c.choices.Happens(c.settings.lateWrites) {
		c.world.record("the garbage collector: a deletion of %s is under way for long", uid)
		c.world.late = append(c.world.late, remove)
		return
	}
	remove()
}

// remove is a deletion that has arrived.
func (c *collector) remove(k kind, key int, uid types.UID) {
	if now, _ := ownerOf(c.world.stored[k][key]); now != uid {
		c.world.record("the garbage collector: conflict at %s", uid)
		c.count.refused++
		return
	}
	c.world.record("the garbage collector deletes %s", uid)
	c.world.writes++
	c.count.collected[k]++
	if k == resourceKind {
		c.world.ghost.deleted[uid] = true
	}
	if le := c.world.lease(key); k == leaseKind && le.holder != "" {
		c.count.held++
	}
	c.world.store(k, key, nil)
}

// ownerOf returns the UID of an object and of its owner.
func ownerOf(object any) (uid, owner types.UID) {
	switch o := object.(type) {
	case *resource:
		return o.uid, o.owner
	case *configMap:
		return o.uid, o.owner
	case *lease:
		return o.uid, o.owner
	}
	return "", ""
}

// has reports whether the caches have an owner.
func (c *collector) has(owner types.UID) bool {
	var objects [2 * pods]any
	for key := range pods {
		for i, k := range []kind{podKind, resourceKind} {
			if at := c.cached[k][key]; at > 0 {
				objects[2*key+i] = c.world.log[k][at-1].object
			}
		}
	}
	return isAmong(owner, objects[:])
}

// exists reports whether the API server has an owner.
func (w *world) exists(owner types.UID) bool {
	return isAmong(owner, w.stored[podKind][:]) || isAmong(owner, w.stored[resourceKind][:])
}

func isAmong(owner types.UID, objects []any) bool {
	for _, object := range objects {
		switch o := object.(type) {
		case *pod:
			if types.UID(o.uid) == owner && !o.terminated {
				return true
			}
		case *resource:
			if o.uid == owner {
				return true
			}
		}
	}
	return false
}

// ownerOfPodObject returns the owner of a new Lease or contract of a pod.
func (s *simulation) ownerOfPodObject(k kind, uid string) types.UID {
	switch r := s.world.resource(0); {
	case s.settings.owners == ownedByPods:
		return types.UID(uid)
	case s.settings.owners == ownedByObjects && k == contractKind && r != nil:
		return r.uid
	}
	return ""
}

// podUID returns the UID of the pod of an incarnation.
func podUID(incarnation string) string {
	uid, _, _ := strings.Cut(incarnation, "/")
	return uid
}
