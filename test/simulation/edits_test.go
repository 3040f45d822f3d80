package simulation

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// touches must be called before users change the labels of the live Node to those of n.
func (g *ghost) touches(w *world, n *nodeview.Node) {
	l := &g.by[w.incarnation]
	for _, key := range []string{w.personKey, w.agentKey} {
		former, wasThere := w.node.Labels[key]
		if value, isThere := n.Labels[key]; wasThere != isThere || former != value {
			l.touched = l.touched.Union(labels.Keys(key))
		}
	}
}

// takesOver must be called before the agents take over the key of the live Node, or remove it. If
// they remove it later, a party that has not seen them set it takes that for a person's removal.
func (g *ghost) takesOver(w *world, n *nodeview.Node) {
	g.touches(w, n)
	if _, isThere := w.node.Labels[w.agentKey]; isThere {
		l := &g.by[w.incarnation]
		l.touched = l.touched.Union(labels.Keys(w.agentKey))
	}
}

// putsEdits must be called before a transaction is stored.
func (g *ghost) putsEdits(w *world, t txn.Transaction) {
	l := &g.by[incarnationOf(t.UID)]
	if t.Type == txn.Deleted && !l.isEnded {
		l.endStoredAt = w.rv
	}
	switch {
	case t.Type == txn.Added:
		l.addedAt = cmp.Or(l.addedAt, w.rv)
	case t.Type == txn.Deleted && t.Edited != "" && !l.isEnded && !g.isLate(t.UID, number(t.Revision.String())):
		l.endedAt, l.edited = w.rv, t.Edited
	}
}

// isLate reports whether a state of an incarnation is stored only after the end of a later one, whose
// edits are or will be saved without it.
func (g *ghost) isLate(uid types.UID, rv int) bool {
	return rv <= g.folded || slices.ContainsFunc(g.by[incarnationOf(uid)+1:], func(l life) bool { return l.endedAt > 0 })
}

// ended must be called when the live Node was deleted. If it never had its labels, the owners of the
// label of users are those on this Node if users have edited it.
func (g *ghost) ended(w *world) {
	must, may := g.editsOf(w, w.incarnation)
	if g.owns(w) || may == "" {
		return
	}
	w.lateEdit = len(w.events) // it is stored after the end of a protected Node, too
	switch {
	case must.Has(w.personKey):
		w.applier.least, w.applier.most = w.applier.owned, w.applier.owned
	case may.Has(w.personKey):
		w.applier.isUnsure = true
	}
}

// editsOf returns the keys that users have edited on an incarnation by its end: those that must count,
// because its last state shows them, or the watcher that recorded its end first had seen the edit, and
// those that may. Processors that protect a Node know only what its last state shows.
func (g *ghost) editsOf(w *world, incarnation int) (must, may labels.Keys) {
	n, l := w.lastOf(incarnation), g.by[incarnation]
	may, must = l.touched.Without(n.Machine).Without(n.Unclear), n.Edited
	if !g.protects {
		must = must.Union(l.edited)
	}
	must = must.Where(func(key string) bool {
		// A value that the agents of an earlier machine have set counts as copied.
		return may.Has(key) && (key != w.agentKey || !g.isCopied(w, incarnation, n.Labels[key]))
	})
	return must, may
}

// lastOf returns the last state of an incarnation.
func (w *world) lastOf(incarnation int) *nodeview.Node {
	for _, e := range slices.Backward(w.events) {
		if e.incarnation == incarnation {
			return e.node
		}
	}
	return nil
}

// withEdits returns what the next incarnation may get, given the possible contents of the record at
// the end of the owner: with what users have edited on incarnations since that never had their labels.
func (g *ghost) withEdits(w *world, next int, sides []labels.Side) []labels.Side {
	for i := g.owner + 1; i < next && i < len(g.by); i++ {
		must, may := g.editsOf(w, i)
		if !g.mustSaveEdits(w, i, next) {
			must = ""
		}
		if may != "" {
			sides = w.edited(sides, i, must, may)
		}
	}
	return sides
}

// edited returns the possible contents of a record after the end of an incarnation, with at least and
// at most the given edits.
func (w *world) edited(sides []labels.Side, incarnation int, must, may labels.Keys) []labels.Side {
	n, next := w.lastOf(incarnation), []labels.Side(nil)
	for _, keys := range subsets(must, may) {
		for _, side := range sides {
			next = appendSides(next, w.editedSides(side, n, keys)...)
		}
	}
	return next
}

// mustSaveEdits reports whether the edits of an incarnation must be saved before the next one gets its
// labels. If changes may be lost, they must if its end was stored before the next one's addition.
func (g *ghost) mustSaveEdits(w *world, incarnation, next int) bool {
	l, rv := g.by[incarnation], number(w.lastOf(incarnation).Revision.String())
	if l.isLoose || l.isPassed || g.by[g.owner].isLoose || rv <= g.forgot {
		return false
	}
	if g.strict && !g.admits {
		return true
	}
	if g.ending.incarnation == next && l.endedAt >= g.ending.at { // the processor has not read that
		return false
	}
	return !g.renews && l.endedAt > 0 && (next == len(g.by) || l.endedAt < g.by[next].addedAt)
}

// subsets returns the sets of keys between two sets.
func subsets(must, may labels.Keys) []labels.Keys {
	all := []labels.Keys{must}
	for key := range may.Without(must).All() {
		for _, keys := range slices.Clone(all) {
			all = append(all, keys.Union(labels.Keys(key)))
		}
	}
	return all
}

// editedSides returns a side with what users had edited on a Node. The key of the agents is overruled
// if those of the former machine had set it, and may be if those of the Node had.
func (w *world) editedSides(side labels.Side, n *nodeview.Node, keys labels.Keys) []labels.Side {
	if keys == "" {
		return []labels.Side{side}
	}
	next := side
	_, next.Labels = parted(side.Labels, keys)
	edited, _ := parted(n.Labels, keys)
	maps.Copy(next.Labels, edited)
	next.Machine, next.Unclear = side.Machine.Without(keys), side.Unclear.Without(keys)
	if !keys.Has(w.agentKey) {
		return []labels.Side{next}
	}
	overruled := next
	overruled.Overruled = next.Overruled.Union(labels.Keys(w.agentKey))
	if side.Machine.Has(w.agentKey) {
		return []labels.Side{overruled}
	}
	return []labels.Side{next, overruled}
}

// parted returns the labels with the keys, and the others.
func parted(all map[string]string, keys labels.Keys) (with, without map[string]string) {
	with, without = map[string]string{}, map[string]string{}
	for key, value := range all {
		if keys.Has(key) {
			with[key] = value
		} else {
			without[key] = value
		}
	}
	return with, without
}

// appendSides appends sides that are not among the others.
func appendSides(sides []labels.Side, more ...labels.Side) []labels.Side {
	for _, side := range more {
		if !slices.ContainsFunc(sides, func(other labels.Side) bool {
			return side.Machine == other.Machine && side.Unclear == other.Unclear && side.Overruled == other.Overruled && maps.Equal(side.Labels, other.Labels)
		}) {
			sides = append(sides, side)
		}
	}
	return sides
}

// foldsEdits must be called when what users have edited on incarnations since a source is saved, up to
// the end of the last one. What only other processors saw of the incarnations before, and have not
// stored yet, may be lost then: edits of one that never had its labels, and an edit during the release
// of the source. So may edits that a watcher has stored after this processor read the queue.
func (g *ghost) foldsEdits(w *world, source int, end event) {
	for i := source + 1; i < end.incarnation; i++ {
		rv := number(w.lastOf(i).Revision.String())
		if l := &g.by[i]; !g.knowsEnd(i) && rv > g.folded {
			l.isPassed = true
		}
	}
	g.folded = max(g.folded, end.rv)
	if l := &g.by[source]; l.released > 0 && !g.knowsEnd(source) {
		l.stored, l.mayLackEdit = min(l.stored, l.released), true
	}
}

// knowsEnd reports whether the processor that writes knows the end of an incarnation: it has seen
// the end itself, or the end was stored before the processor read the queue.
func (g *ghost) knowsEnd(incarnation int) bool {
	l := &g.by[incarnation]
	return l.isEnded && (g.ending.incarnation == 0 || l.endStoredAt < g.ending.at) ||
		slices.ContainsFunc(g.heard, func(e event) bool { return e.isDelete && e.incarnation == incarnation })
}

// notesEnd must be called before a record is written that notes a state of an incarnation. It may be
// the end of a later one that never had its labels, with edits that change nothing.
func (g *ghost) notesEnd(w *world, r record.Record) {
	for _, e := range w.events {
		if e.rv == number(r.Restored.Revision.String()) && e.incarnation > incarnationOf(r.Restored.UID) {
			g.foldsEdits(w, incarnationOf(r.Restored.UID), e)
		}
	}
}

// savesEdits reports whether a record is a state of its source, with what users have edited on
// incarnations since that never had their labels, up to a state of the last one. If a later
// incarnation was restored meanwhile, that is not noted, and is done again: another watcher has
// recorded the end, too, and has seen more of it. The restore is not repeated if that end changes
// only who set the saved labels.
func (g *ghost) savesEdits(w *world, e event, r record.Record) bool {
	source := incarnationOf(r.Source)
	if e.incarnation <= source || g.by[source].owns == 0 || !slices.ContainsFunc(w.events, func(of event) bool {
		return of.incarnation == source && of.rv >= g.by[source].owns && w.differsByEdits(r, of, e)
	}) {
		return false
	}
	g.foldsEdits(w, source, e)
	hasSameLabels := w.record.hasLabels() && w.record.Revision == r.Revision && maps.Equal(w.record.Labels, r.Labels)
	if g.owner != source && r.Restored.UID == "" && !hasSameLabels {
		l := &g.by[g.owner]
		l.owns, l.restored, g.owner = 0, 0, source
		g.trust.isUnsure, g.guardsUnsure, w.applier.isUnsure = true, true, true
	}
	return true
}

// differsByEdits reports whether a record differs from a state of its source only by what later
// incarnations had up to an event, and by keys that users have edited there.
func (w *world) differsByEdits(r record.Record, of, until event) bool {
	own, _ := split(of.node.Labels)
	_, others := parted(own, labels.Keys(w.personKey).Union(labels.Keys(w.agentKey)))
	_, saved := parted(plain(r.Labels), labels.Keys(w.personKey).Union(labels.Keys(w.agentKey)))
	if !maps.Equal(others, saved) {
		return false
	}
	for _, key := range []string{w.personKey, w.agentKey} {
		isKey := func(e event) bool {
			former, wasThere := e.node.Labels[key]
			value, isThere := r.Labels[key]
			return wasThere == isThere && former == value
		}
		if !isKey(of) && !slices.ContainsFunc(w.events, func(e event) bool {
			return e.incarnation > of.incarnation && e.rv <= until.rv && w.ghost.by[e.incarnation].touched.Has(key) && isKey(e)
		}) {
			return false
		}
	}
	return true
}
