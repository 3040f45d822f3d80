package simulation

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// The promises of docs/design.md.
var (
	errBrokeP1 = errors.New("P1: a node gets the labels that it had when it was deleted")
	errBrokeP2 = errors.New("P2: the result is as if each transaction had been applied once, in order")
	errBrokeP3 = errors.New("P3: what was edited after a restore is never overwritten by an older event")
	errBrokeP4 = errors.New("P4: a restore is owed until it is done")
	errStuck   = errors.New("the queue gets empty")
	errNoisy   = errors.New("a restart of every watcher on a quiet cluster records nothing")
)

// ghost knows what the labels ought to be. It sees all writes at once, and decides nothing for the actors.
//
// An incarnation owns its labels from when they were put back onto it; the first one from its creation. What
// the next incarnation is to get are the labels that the last owner had in the end. If all watchers were down,
// nobody may know those: then any labels that it had will do that are not older than what was stored of it.
type ghost struct {
	variant        variant
	recordsUpdates bool

	owner int    // the last incarnation that owned its labels; 0: none has yet
	by    []life // the incarnations; the first one has the index 1
}

// life is what the ghost knows of one incarnation. All are resourceVersions; 0: not yet.
type life struct {
	restored int // when labels were last put back onto it
	owns     int // since when it owns its labels
	stored   int // the newest of its states that a watcher has stored
	floor    int // what was stored of the last owner when it was first recorded that this incarnation was added
	isAdded  bool
	isEnded  bool // a watcher has stored its end
}

func (g *ghost) reset(v variant, recordsUpdates bool) {
	*g = ghost{variant: v, recordsUpdates: recordsUpdates, by: append(g.by[:0], life{})}
}

// isStrict says whether nothing is ever to be lost.
func (g *ghost) isStrict() bool { return g.variant != outage }

// created is told after a Node was created.
func (g *ghost) created(w *world) {
	g.by = append(g.by, life{})
	if g.isStrict() && g.owner == 0 {
		g.becomesOwner(w.incarnation, w.rv)
	}
}

func (g *ghost) becomesOwner(incarnation, rv int) {
	g.owner = incarnation
	g.by[incarnation].owns = rv
}

// owns says whether the live incarnation has its labels.
func (g *ghost) owns(w *world) bool { return g.by[w.incarnation].owns > 0 }

// puts is told before a transaction is stored, and when one is left out that need not be.
func (g *ghost) puts(t txn.Transaction) {
	l := &g.by[incarnationOf(t.UID)]
	l.stored = max(l.stored, number(t.ResourceVersion))
	l.isEnded = l.isEnded || t.Type == txn.Deleted
	if t.Type == txn.Added && !l.isAdded {
		l.isAdded, l.floor = true, g.by[g.owner].stored
	}
}

// restores is told before a restore.
func (g *ghost) restores(w *world, read *preserve.Node, d preserve.Decision) {
	if g.owns(w) {
		w.breaks(errBrokeP3, "%s has %v, and gets %v", read.UID, read.Labels, d.Labels)
		return
	}
	isRight := func(saved map[string]string) bool { return maps.Equal(d.Labels, policy.Restored(read.Labels, saved)) }
	if !g.had(w, g.by[w.incarnation].floor, isRight) {
		w.breaks(errBrokeP1, "%s gets %v, which u%d did not have in the end", read.UID, d.Labels, g.owner)
	}
}

// restored is told after a restore.
func (g *ghost) restored(w *world) {
	g.by[w.incarnation].restored = w.rv
	if g.isStrict() {
		g.becomesOwner(w.incarnation, w.rv)
	}
}

// noted is told that the record has a note of a restore, or labels that came after it. If a watcher that was away records
// late what was before the restore, that is done only then, and done again until then.
func (g *ghost) noted(incarnation int) {
	if l := g.by[incarnation]; l.restored > 0 && l.owns == 0 {
		g.becomesOwner(incarnation, l.restored)
	}
}

// had says whether the owner had labels that may be what the next incarnation gets.
func (g *ghost) had(w *world, floor int, isRight func(map[string]string) bool) bool {
	for _, e := range slices.Backward(w.events) {
		if e.incarnation != g.owner {
			continue
		}
		own, _ := labels.Split(e.node.Labels)
		if e.rv < g.by[g.owner].owns || isRight(own) {
			return e.rv >= g.by[g.owner].owns
		}
		if g.isStrict() || e.rv <= floor {
			return false
		}
	}
	return false
}

// saves is told before a record is written.
func (g *ghost) saves(w *world, r record.Record) {
	version, source := number(r.Version), incarnationOf(r.Source)
	if w.record == nil && !g.isStrict() {
		g.becomesOwner(source, w.firstRV(source))
	}
	g.noted(source)
	if r.Restored.UID != "" {
		g.noted(incarnationOf(r.Restored.UID))
	}
	if w.record == nil && !g.recordsUpdates && w.node != nil && incarnationOf(w.node.UID) == source && w.node.DeletionTimestamp == nil {
		w.breaks(errBrokeP1, "the first labels of %s are saved while it lives, and no changes are recorded", r.Source)
	}
	if r.Restored.UID != "" && number(r.Restored.ResourceVersion) < version {
		w.breaks(errBrokeP2, "a note of %s is older than the labels", r.Restored.UID)
	}
	if w.record != nil && lastSeen(r) < lastSeen(w.record.Record) {
		w.breaks(errBrokeP2, "the record goes back from %d to %d", lastSeen(w.record.Record), lastSeen(r))
	}
	for _, e := range w.events {
		if e.rv != version {
			continue
		}
		own, _ := labels.Split(e.node.Labels)
		switch {
		case e.incarnation != source || !maps.Equal(own, r.Labels):
			w.breaks(errBrokeP2, "%v are not the labels of %s at %s", r.Labels, r.Source, r.Version)
		case g.by[source].owns == 0 || g.by[source].owns > version:
			w.breaks(errBrokeP2, "%v is saved, and %s did not have its labels", r.Labels, r.Source)
		}
	}
}

// lastSeen is when an incarnation was last known to have the labels of a record.
func lastSeen(r record.Record) int { return max(number(r.Version), number(r.Restored.ResourceVersion)) }

// firstRV returns the resourceVersion with which an incarnation was created.
func (w *world) firstRV(incarnation int) int {
	for _, e := range w.events {
		if e.incarnation == incarnation {
			return e.rv
		}
	}
	return 0
}

// check compares what there is in the end with what there ought to be.
func (g *ghost) check(w *world) {
	switch {
	case w.broken != nil:
	case w.record == nil:
		g.checkNoRecord(w)
	case w.node != nil && !g.owns(w):
		w.breaks(errBrokeP4, "%s never got its labels", w.node.UID)
	case w.node != nil && !w.isNoted():
		w.breaks(errBrokeP4, "the record does not say that %s has its labels", w.node.UID)
	case w.node != nil && !g.recordsUpdates:
	case w.node != nil:
		own, marker := labels.Split(w.node.Labels)
		if !maps.Equal(own, w.record.Labels) {
			w.breaks(errBrokeP1, "saved are %v, the node has %v (marker %q)", w.record.Labels, own, marker)
		}
	case !g.had(w, g.by[g.owner].stored, func(own map[string]string) bool { return maps.Equal(own, w.record.Labels) }):
		w.breaks(errBrokeP1, "saved are %v, which u%d did not have in the end", w.record.Labels, g.owner)
	}
}

// checkNoRecord is for the end if nothing was ever saved.
func (g *ghost) checkNoRecord(w *world) {
	switch {
	case w.incarnation == 0:
	case w.node != nil && g.recordsUpdates, w.node == nil && g.isStrict(), w.incarnation > 1 && g.isStrict():
		w.breaks(errBrokeP1, "nothing is saved")
	}
}

// incarnationOf is which life of the node, counted from 1, a uid belongs to.
func incarnationOf(uid types.UID) int { return number(string(uid[1:])) }

// number is that of a resourceVersion; -1 if it is none.
func number(rv string) int {
	n, err := strconv.Atoi(rv)
	if err != nil {
		return -1
	}
	return n
}
