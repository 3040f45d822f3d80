package shard

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gate lets the controllers of one kind work on an object, or one of them give it away. It is safe for
// concurrent use.
type gate struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]*passage
	// isShared says that controllers see the kind by several caches, so that one can be behind another.
	isShared bool
}

// passage is what the gate knows of an object.
type passage struct {
	// uid is that of the object that was last worked on, "" if this shard has none.
	uid types.UID
	// inside is how many controllers work on the object.
	inside int
	// isClosed says that one of them gives it away. The last that works on it closes empty.
	isClosed bool
	empty    chan struct{}
	// given is the resourceVersion at which the object was given away, "" if it was not.
	given string
	// children is the note of the sharder on which children to wait for, and since when that was waited for:
	// zero if they are there.
	children string
	since    time.Time
}

// enter begins work on an object. It reports false while the object is given away.
func (g *gate) enter(key client.ObjectKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	if p.isClosed {
		return false
	}
	p.inside++
	return true
}

// leave ends work on an object.
func (g *gate) leave(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	p.inside--
	if p.inside == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
	g.tidyLocked(key)
}

// close keeps controllers from beginning work on an object, and returns when none is at work on it. It
// reports false if another controller gives the object away, or ctx ends. Call open afterwards if it
// reports true.
func (g *gate) close(ctx context.Context, key client.ObjectKey) bool {
	g.mu.Lock()
	p := g.atLocked(key)
	if p.isClosed {
		g.mu.Unlock()
		return false
	}
	p.isClosed = true
	if p.inside == 0 {
		g.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	p.empty = empty
	g.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-ctx.Done():
		g.open(key)
		return false
	}
}

// open lets controllers work on an object again.
func (g *gate) open(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.isClosed, p.empty = false, nil
	g.tidyLocked(key)
}

// know notes that an object is worked on.
func (g *gate) know(key client.ObjectKey, uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.uid, p.given = uid, ""
}

// isKnown reports whether an object was worked on, and not given away or forgotten since.
func (g *gate) isKnown(key client.ObjectKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	return p != nil && p.uid != ""
}

// forget notes that a cache does not show an object any more. If that is the only one, what was given
// away cannot appear again as it was.
func (g *gate) forget(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	if p == nil {
		return
	}
	p.uid, p.children, p.since = "", "", time.Time{}
	if !g.isShared {
		p.given = ""
	}
	g.tidyLocked(key)
}

// give notes that the object as of a resourceVersion may have been given away: no controller may work on
// it until it sees a newer version.
func (g *gate) give(key client.ObjectKey, version string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.atLocked(key).given = version
}

// gave notes that the object was given away.
func (g *gate) gave(key client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.atLocked(key)
	p.uid, p.children, p.since = "", "", time.Time{}
}

// isGiven reports whether the object was given away after the version that a controller sees.
func (g *gate) isGiven(key client.ObjectKey, version string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.objects[key]
	if p == nil || p.given == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, p.given)
	return err != nil || order <= 0
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

// count returns how many objects this shard has worked on and still has.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, p := range g.objects {
		if p.uid != "" {
			n++
		}
	}
	return n
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
	if p := g.objects[key]; p != nil && *p == (passage{}) {
		delete(g.objects, key)
	}
}
