package shard

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// passages coordinates the controllers of one kind: at any time, either controllers reconcile an
// object or one of them releases it to another shard, never both. The zero value is ready to use.
// It is safe for concurrent use.
type passages struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]*passage
	// views holds the Go types under which controllers watch the kind. Each type has a cache of its
	// own, so that with several types one cache can be behind another.
	views map[reflect.Type]bool
	// joined is the number of controllers.
	joined int
}

// passage is what this shard knows of one object. The zero value is that of an object that this
// shard has never reconciled; such a passage is not stored.
type passage struct {
	door  door
	claim claim
	wait  childWait
}

// isZero reports whether a passage holds no information.
func (p *passage) isZero() bool {
	return p.door.state() == idle && p.claim == claim{} && p.wait == childWait{}
}

// controllers is a set of the controllers of a kind, one bit each.
type controllers uint64

// join registers a controller and returns its bit. From the 65th controller on, bits are shared.
func (ps *passages) join() controllers {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.joined++
	return 1 << ((ps.joined - 1) % 64)
}

// addView records a type under which a controller watches the kind, and reports whether it is new.
func (ps *passages) addView(view reflect.Type) (isNew bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.views == nil {
		ps.views = map[reflect.Type]bool{}
	}
	isNew = !ps.views[view]
	ps.views[view] = true
	return isNew
}

// enter begins a reconcile of an object. It returns false while the object is being released. A
// controller must enter before it relies on a cached version of the object: see
// [passages.mayBeReleased].
func (ps *passages) enter(key client.ObjectKey, w *work) (entered bool) {
	ps.at(key, func(p *passage) { entered = p.door.enter(w) })
	return entered
}

// leave ends a reconcile of an object.
func (ps *passages) leave(key client.ObjectKey, w *work) {
	ps.at(key, func(p *passage) { p.door.leave(w) })
}

// end cancels the contexts of all reconciles of an object.
func (ps *passages) end(key client.ObjectKey, cause error) {
	ps.at(key, func(p *passage) { p.door.end(cause) })
}

// isBusy reports whether a controller is reconciling an object.
func (ps *passages) isBusy(key client.ObjectKey) (isBusy bool) {
	ps.at(key, func(p *passage) { isBusy = p.door.state() == working })
	return isBusy
}

// close keeps controllers from starting a reconcile of an object. It returns false, and closes
// nothing, while a controller is reconciling or releasing the object. It does not wait, because a
// reconciler that never returns would then block its controller. If close returns true, the caller
// must call open afterwards.
func (ps *passages) close(key client.ObjectKey) (closed bool) {
	ps.at(key, func(p *passage) { closed = p.door.close() })
	return closed
}

// open lets controllers reconcile an object again.
func (ps *passages) open(key client.ObjectKey) {
	ps.at(key, func(p *passage) { p.door.open() })
}

// addWorker records that a controller reconciles an object.
func (ps *passages) addWorker(key client.ObjectKey, uid types.UID, worker controllers) {
	ps.at(key, func(p *passage) { p.claim.work(uid, worker) })
}

// isWorker reports whether a controller has reconciled an object and has not forgotten it.
func (ps *passages) isWorker(key client.ObjectKey, worker controllers) (isWorker bool) {
	ps.at(key, func(p *passage) { isWorker = p.claim.workers&worker != 0 })
	return isWorker
}

// uid returns the UID of the object that was last reconciled, or "" if it was released or forgotten
// since.
func (ps *passages) uid(key client.ObjectKey) (uid types.UID) {
	ps.at(key, func(p *passage) { uid = p.claim.uid })
	return uid
}

// forget records that a controller has handled the disappearance of an object from its cache. If
// there is only one cache, the released version cannot reappear there.
func (ps *passages) forget(key client.ObjectKey, worker controllers) {
	ps.at(key, func(p *passage) {
		if p.claim.forget(worker, len(ps.views) < 2); p.claim.workers == 0 {
			p.wait = childWait{}
		}
	})
}

// releasing records that the given version of an object may be released from now on: no controller
// may reconcile the object until its cache holds a newer version.
func (ps *passages) releasing(key client.ObjectKey, version string) {
	ps.at(key, func(p *passage) { p.claim.send(version) })
}

// confirmRelease records that the API server has stored the release of an object.
func (ps *passages) confirmRelease(key client.ObjectKey) {
	ps.at(key, func(p *passage) {
		p.claim.confirm()
		p.wait = childWait{}
	})
}

// cancelRelease records that an object was not released.
func (ps *passages) cancelRelease(key client.ObjectKey) {
	ps.at(key, func(p *passage) { p.claim.cancel() })
}

// isReleased reports whether the given version of an object is known to be released.
func (ps *passages) isReleased(key client.ObjectKey, version string) (isReleased bool) {
	ps.at(key, func(p *passage) { isReleased = p.claim.state == released && p.claim.covers(version) })
	return isReleased
}

// mayBeReleased reports whether an object may have been released at the given version or a later
// one.
func (ps *passages) mayBeReleased(key client.ObjectKey, version string) (mayBe bool) {
	ps.at(key, func(p *passage) { mayBe = p.claim.covers(version) })
	return mayBe
}

// waitingSince returns the time since which controllers have been waiting for the children named in
// an annotation, or zero if the children have arrived.
func (ps *passages) waitingSince(key client.ObjectKey, annotation string, now time.Time) (since time.Time) {
	ps.at(key, func(p *passage) {
		if p.wait.children != annotation {
			p.wait = childWait{annotation, now}
		}
		since = p.wait.since
	})
	return since
}

// childrenArrived records that the caches hold the children named in an annotation.
func (ps *passages) childrenArrived(key client.ObjectKey, annotation string) {
	ps.at(key, func(p *passage) { p.wait = childWait{children: annotation} })
}

// isAtWork reports whether a controller is reconciling or releasing any object.
func (ps *passages) isAtWork() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.objects {
		if p.door.state() != idle {
			return true
		}
	}
	return false
}

// at calls do with the passage of an object, and stores what it leaves.
func (ps *passages) at(key client.ObjectKey, do func(*passage)) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.objects[key]
	isNew := p == nil
	if isNew {
		p = &passage{}
	}
	do(p)
	switch isZero := p.isZero(); {
	case isNew && !isZero:
		if ps.objects == nil {
			ps.objects = map[client.ObjectKey]*passage{}
		}
		ps.objects[key] = p
	case !isNew && isZero:
		delete(ps.objects, key)
	}
}
