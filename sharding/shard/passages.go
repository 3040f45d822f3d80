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

// gate is between the controllers of one kind and the objects of that kind: either some of them work on
// an object, or one of them gives it away. It is safe for concurrent use.
type gate struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]*passage
	// views are the types by which controllers see the kind. Each has a cache of its own, so that with
	// more than one a cache can be behind another.
	views map[reflect.Type]bool
	// joined is how many controllers there are.
	joined int
}

// passage is what the gate knows of an object.
type passage struct {
	// uid is that of the object that was last worked on, "" if this shard has none. by are the controllers
	// that have, and have not heard that it is gone.
	uid types.UID
	by  controllers
	// inside is the work of controllers on the object.
	inside map[*work]bool
	// isClosed says that one of them gives it away.
	isClosed bool
	// given is the resourceVersion at which the object was given away, "" if it was not.
	given string
	// isOut says that it was given away: the answer of the API server has come.
	isOut bool
	// children is the note of the sharder on which children to wait for, and since when that was waited for:
	// zero if they are there.
	children string
	since    time.Time
}

// work is one reconcile of an object that is in progress.
type work struct {
	// end ends the context of it.
	end context.CancelCauseFunc
}

// controllers are some of the controllers of a kind, a bit for each.
type controllers uint64

// join returns another controller. From the 65th on, it is one that there is.
func (g *gate) join() controllers {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joined++
	return 1 << ((g.joined - 1) % 64)
}

// see notes a type by which a controller sees the kind, and reports whether it is the first to do so.
func (g *gate) see(view reflect.Type) (isNew bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.views == nil {
		g.views = map[reflect.Type]bool{}
	}
	isNew = !g.views[view]
	g.views[view] = true
	return isNew
}

// enter begins work on an object. It reports false while the object is given away. Only after it has
// entered can a controller rely on what a cache says about the object: see [gate.isGiven].
func (g *gate) enter(key client.ObjectKey, w *work) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	if p.isClosed {
		return false
	}
	if p.inside == nil {
		p.inside = map[*work]bool{}
	}
	p.inside[w] = true
	return true
}

// leave notes that work on an object has ended.
func (g *gate) leave(key client.ObjectKey, w *work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.objects[key].inside, w)
	g.tidyLocked(key)
}

// end ends the contexts of all work on an object.
func (g *gate) end(key client.ObjectKey, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.objects[key]; p != nil {
		for w := range p.inside {
			w.end(cause)
		}
	}
}

// isBusy reports whether a controller works on an object.
func (g *gate) isBusy(key client.ObjectKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	return p != nil && len(p.inside) > 0
}

// close keeps controllers from beginning work on an object. It reports false, and closes nothing, while
// one is at work on it or gives it away: this does not wait, as a reconciler that never returns would
// stop its controller, too. Call open afterwards if it reports true.
func (g *gate) close(key client.ObjectKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	if p.isClosed || len(p.inside) > 0 {
		return false
	}
	p.isClosed = true
	return true
}

// open lets controllers work on an object again.
func (g *gate) open(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.atLocked(key).isClosed = false
	g.tidyLocked(key)
}

// know notes that a controller works on an object.
func (g *gate) know(key client.ObjectKey, uid types.UID, by controllers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	if p.uid == uid {
		by |= p.by
	}
	p.uid, p.by, p.given, p.isOut = uid, by, "", false
}

// knows reports whether a controller has worked on an object, and has not forgotten it.
func (g *gate) knows(key client.ObjectKey, by controllers) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	return p != nil && p.by&by != 0
}

// known returns the uid of the object that was worked on, and was not given away or forgotten since, ""
// if there is none.
func (g *gate) known(key client.ObjectKey) types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.objects[key]; p != nil {
		return p.uid
	}
	return ""
}

// forget notes that a controller has heard that an object is gone, as its cache does not show it any more.
// If that is the only cache, what was given away cannot appear again as it was.
func (g *gate) forget(key client.ObjectKey, by controllers) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	if p == nil {
		return
	}
	if p.by &^= by; p.by == 0 {
		p.uid, p.children, p.since = "", "", time.Time{}
	}
	if len(g.views) < 2 {
		p.given, p.isOut = "", false
	}
	g.tidyLocked(key)
}

// give notes that the object as of a resourceVersion may have been given away: no controller may work on
// it until it sees a newer version.
func (g *gate) give(key client.ObjectKey, version string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.given, p.isOut = version, false
}

// gave notes that the object was given away.
func (g *gate) gave(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.uid, p.by, p.isOut, p.children, p.since = "", 0, true, "", time.Time{}
}

// keep notes that the object was not given away after all.
func (g *gate) keep(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.given, p.isOut = "", false
}

// isOut reports whether the object as of a version was given away for certain.
func (g *gate) isOut(key client.ObjectKey, version string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	return p != nil && p.isOut && !isLater(version, p.given)
}

// isGiven reports whether the object may have been given away after the version that a controller sees.
func (g *gate) isGiven(key client.ObjectKey, version string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	return p != nil && p.given != "" && !isLater(version, p.given)
}

// waited returns since when the children that a note names have been waited for, and zero if they are
// there.
func (g *gate) waited(key client.ObjectKey, note string, now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	if p.children != note {
		p.children, p.since = note, now
	}
	return p.since
}

// arrived notes that the children that a note names are there.
func (g *gate) arrived(key client.ObjectKey, note string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.children, p.since = note, time.Time{}
}

// isAtWork reports whether a controller works on an object, or gives one away.
func (g *gate) isAtWork() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.objects {
		if len(p.inside) > 0 || p.isClosed {
			return true
		}
	}
	return false
}

func (g *gate) atLocked(key client.ObjectKey) *passage {
	p := g.objects[key]
	if p == nil {
		if g.objects == nil {
			g.objects = map[client.ObjectKey]*passage{}
		}
		p = &passage{}
		g.objects[key] = p
	}
	return p
}

// tidyLocked removes what says nothing.
func (g *gate) tidyLocked(key client.ObjectKey) {
	if p := g.objects[key]; p != nil && p.saysNothing() {
		delete(g.objects, key)
	}
}

func (p *passage) saysNothing() bool {
	return p.uid == "" && p.by == 0 && len(p.inside) == 0 && !p.isClosed && p.given == "" && !p.isOut && p.children == "" && p.since.IsZero()
}

// isLater reports whether a resourceVersion is a later one than another.
func isLater(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}
