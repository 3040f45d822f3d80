package shard

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// passage is the state of one object. The zero value is that of an object that this shard has never
// reconciled; such a passage is not stored.
type passage struct {
	// uid is that of the last reconciled object, or "" if this shard does not have the object.
	// workers are the controllers that have reconciled it and have not yet handled its deletion.
	uid     types.UID
	workers controllers
	// active holds the reconciles in progress.
	active map[*work]bool
	// closed is set while a controller releases the object.
	closed bool
	// releasedVersion is the resourceVersion at which the shard has tried to release the object, or
	// "".
	releasedVersion string
	// released is set once the API server has confirmed the release.
	released bool
	// children is the children annotation that this shard waits for or has waited for. since is the
	// start of the wait, or zero if the children have arrived.
	children string
	since    time.Time
}

// work is a reconcile in progress.
type work struct {
	// end cancels its context.
	end context.CancelCauseFunc
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
func (ps *passages) enter(key client.ObjectKey, w *work) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	if p.closed {
		return false
	}
	if p.active == nil {
		p.active = map[*work]bool{}
	}
	p.active[w] = true
	return true
}

// leave ends a reconcile of an object.
func (ps *passages) leave(key client.ObjectKey, w *work) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.objects[key].active, w)
	ps.pruneLocked(key)
}

// end cancels the contexts of all reconciles of an object.
func (ps *passages) end(key client.ObjectKey, cause error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.objects[key]; p != nil {
		for w := range p.active {
			w.end(cause)
		}
	}
}

// isBusy reports whether a controller is reconciling an object.
func (ps *passages) isBusy(key client.ObjectKey) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.objects[key]
	return p != nil && len(p.active) > 0
}

// close keeps controllers from starting a reconcile of an object. It returns false, and closes
// nothing, while a controller is reconciling or releasing the object. It does not wait, because a
// reconciler that never returns would then block its controller. If close returns true, the caller
// must call open afterwards.
func (ps *passages) close(key client.ObjectKey) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	if p.closed || len(p.active) > 0 {
		return false
	}
	p.closed = true
	return true
}

// open lets controllers reconcile an object again.
func (ps *passages) open(key client.ObjectKey) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.atLocked(key).closed = false
	ps.pruneLocked(key)
}

// addWorker records that a controller reconciles an object.
func (ps *passages) addWorker(key client.ObjectKey, uid types.UID, worker controllers) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	if p.uid == uid {
		worker |= p.workers
	}
	p.uid, p.workers, p.releasedVersion, p.released = uid, worker, "", false
}

// isWorker reports whether a controller has reconciled an object and has not forgotten it.
func (ps *passages) isWorker(key client.ObjectKey, worker controllers) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.objects[key]
	return p != nil && p.workers&worker != 0
}

// uid returns the UID of the object that was last reconciled, or "" if it was released or forgotten
// since.
func (ps *passages) uid(key client.ObjectKey) types.UID {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.objects[key]; p != nil {
		return p.uid
	}
	return ""
}

// forget records that a controller has handled the disappearance of an object from its cache. If
// there is only one cache, the released version cannot reappear there.
func (ps *passages) forget(key client.ObjectKey, worker controllers) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.objects[key]
	if p == nil {
		return
	}
	if p.workers &^= worker; p.workers == 0 {
		p.uid, p.children, p.since = "", "", time.Time{}
	}
	if len(ps.views) < 2 {
		p.releasedVersion, p.released = "", false
	}
	ps.pruneLocked(key)
}

// releasing records that the given version of an object may be released from now on: no controller
// may reconcile the object until its cache holds a newer version.
func (ps *passages) releasing(key client.ObjectKey, version string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	p.releasedVersion, p.released = version, false
}

// confirmRelease records that the API server has stored the release of an object.
func (ps *passages) confirmRelease(key client.ObjectKey) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	p.uid, p.workers, p.released, p.children, p.since = "", 0, true, "", time.Time{}
}

// cancelRelease records that an object was not released.
func (ps *passages) cancelRelease(key client.ObjectKey) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	p.releasedVersion, p.released = "", false
}

// isReleased reports whether the given version of an object is known to be released.
func (ps *passages) isReleased(key client.ObjectKey, version string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.objects[key]
	return p != nil && p.released && !isLater(version, p.releasedVersion)
}

// mayBeReleased reports whether an object may have been released at the given version or a later
// one.
func (ps *passages) mayBeReleased(key client.ObjectKey, version string) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.objects[key]
	return p != nil && p.releasedVersion != "" && !isLater(version, p.releasedVersion)
}

// waitingSince returns the time since which controllers have been waiting for the children named in
// an annotation, or zero if the children have arrived.
func (ps *passages) waitingSince(key client.ObjectKey, annotation string, now time.Time) time.Time {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	if p.children != annotation {
		p.children, p.since = annotation, now
	}
	return p.since
}

// childrenArrived records that the caches hold the children named in an annotation.
func (ps *passages) childrenArrived(key client.ObjectKey, annotation string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.atLocked(key)
	p.children, p.since = annotation, time.Time{}
}

// isAtWork reports whether a controller is reconciling or releasing any object.
func (ps *passages) isAtWork() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.objects {
		if len(p.active) > 0 || p.closed {
			return true
		}
	}
	return false
}

func (ps *passages) atLocked(key client.ObjectKey) *passage {
	p := ps.objects[key]
	if p == nil {
		if ps.objects == nil {
			ps.objects = map[client.ObjectKey]*passage{}
		}
		p = &passage{}
		ps.objects[key] = p
	}
	return p
}

// pruneLocked removes a passage that holds no information.
func (ps *passages) pruneLocked(key client.ObjectKey) {
	if p := ps.objects[key]; p != nil && p.isZero() {
		delete(ps.objects, key)
	}
}

func (p *passage) isZero() bool {
	return p.uid == "" && p.workers == 0 && len(p.active) == 0 && !p.closed && p.releasedVersion == "" && !p.released && p.children == "" && p.since.IsZero()
}

// isLater reports whether a resourceVersion is later than another one.
func isLater(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}
