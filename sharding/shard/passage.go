package shard

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// doorState is who may be at an object now.
type doorState int

const (
	// idle: no controller is. Controllers may enter, and one of them may close the door.
	idle doorState = iota
	// working: controllers reconcile the object. More may enter.
	working
	// closing: one controller decides about the release of the object. No other may enter.
	closing
)

// door keeps the reconciles of an object apart from its release. The zero value is idle.
type door struct {
	// inside holds the reconciles in progress.
	inside    map[*work]bool
	isClosing bool
}

// work is a reconcile in progress.
type work struct {
	// end cancels its context.
	end context.CancelCauseFunc
}

func (d *door) state() doorState {
	switch {
	case d.isClosing:
		return closing
	case len(d.inside) > 0:
		return working
	}
	return idle
}

// enter begins a reconcile, unless the door is closing.
func (d *door) enter(w *work) bool {
	if d.state() == closing {
		return false
	}
	if d.inside == nil {
		d.inside = map[*work]bool{}
	}
	d.inside[w] = true
	return true
}

func (d *door) leave(w *work) { delete(d.inside, w) }

// close begins a release if the door is idle.
func (d *door) close() bool {
	if d.state() != idle {
		return false
	}
	d.isClosing = true
	return true
}

func (d *door) open() { d.isClosing = false }

// end cancels all reconciles.
func (d *door) end(cause error) {
	for w := range d.inside {
		w.end(cause)
	}
}

// claimState is what this shard has of an object.
type claimState int

const (
	// none: this shard has not reconciled the object, or has forgotten it.
	none claimState = iota
	// held: this shard has reconciled it.
	held
	// sent: this shard has asked the API server to release a version of it, and does not know the
	// answer.
	sent
	// released: the API server has released that version.
	released
)

// claim is what this shard has of an object. The zero value is none.
type claim struct {
	state claimState
	// uid is that of the last reconciled object, or "". workers are the controllers that have
	// reconciled it and have not yet handled its deletion. Both are empty once it is released.
	uid     types.UID
	workers controllers
	// version is the resourceVersion that was sent or released. A cache may still hold it.
	version string
}

// work records that a controller reconciles the object, in a version that was not released.
func (c *claim) work(uid types.UID, worker controllers) {
	if c.uid == uid {
		worker |= c.workers
	}
	*c = claim{state: held, uid: uid, workers: worker}
}

// send records that a request to release a version is about to be sent.
func (c *claim) send(version string) { c.state, c.version = sent, version }

// confirm records that the API server has stored the release.
func (c *claim) confirm() { *c = claim{state: released, version: c.version} }

// cancel records that the API server has stored no release.
func (c *claim) cancel() {
	c.state, c.version = held, ""
	if c.uid == "" {
		c.state = none
	}
}

// forget records that a controller has handled the disappearance of the object from its cache. If
// that is the only cache, the version that was sent or released cannot appear any more.
func (c *claim) forget(worker controllers, isOnlyCache bool) {
	if c.workers &^= worker; c.workers == 0 {
		c.uid = ""
	}
	if isOnlyCache || c.state == held {
		c.cancel()
	}
}

// covers reports whether an object in this version may have been released.
func (c *claim) covers(version string) bool {
	return c.version != "" && !isLater(version, c.version)
}

// childWait is the wait for the children of an object that has moved to this shard.
type childWait struct {
	// children is the children annotation that this shard waits for or has waited for.
	children string
	// since is the start of the wait, or zero if the children have arrived.
	since time.Time
}

// isLater reports whether a resourceVersion is later than another one.
func isLater(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}
