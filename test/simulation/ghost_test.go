package simulation

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// The promises of docs/design.md.
var (
	errBrokeP1 = errors.New("P1: a node gets the labels that it had when it was deleted")
	errBrokeP2 = errors.New("P2: the result is as if each transaction had been applied once, in order")
	errBrokeP3 = errors.New("P3: what was edited after a restore is never overwritten by an older event")
	errBrokeP7 = errors.New("P7: the machine's word about itself is never overwritten, and never outlives it")
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
	strict         bool // whether nothing is ever to be lost
	recordsUpdates bool
	protects       bool // whether processors save the end of a Node before what waits of it in the queue
	markersSuffice bool // whether a Node with the marker of the record has its labels, though the record has no note of it
	watched        bool // whether the effect of each event is that of a watcher which has seen the one before

	owner     int  // the last incarnation that owned its labels; 0: none has yet
	founder   int  // the last one that the first record may be of; 0: any
	overruled bool // whether a person has ever written on the key of the agents
	withdrawn bool // whether agents have ever taken their label back, so that it may look as if a person had
	trust     trust
	forgot    int    // up to where no event counts, since the record was removed
	ending    ending // of the processor that writes a record
	by        []life // the incarnations; the first one has the index 1
}

// life is what the ghost knows of one incarnation. All numbers are resourceVersions; 0: not yet.
type life struct {
	restored int     // when labels were last put back onto it
	owns     int     // since when it owns its labels
	stored   int     // the newest of its states that a watcher has stored
	floor    int     // what was stored of the last owner when it was first recorded that this incarnation was added
	removed  int     // since when it is stored that a person has removed the key of the agents; 0: it is not
	machine  machine // which one it is
	isAdded  bool
	isEnded  bool // a watcher has stored its end
	isLoose  bool // it was there while the record was removed: that may have overtaken what was stored of it

	said []string // what its agents have said

	asked *creation // how it was admitted, if it had its labels then; nil: they are put back later
}

// ending is what a processor may know of the past of an incarnation whose end it saves: what was
// stored of the owner when it read the queue. Zero: it saves no end.
type ending struct{ incarnation, owner, stored int }

// endingOf returns what a processor may know that reads the queue now to save the end of a Node.
func (g *ghost) endingOf(uid types.UID) ending {
	return ending{incarnationOf(uid), g.owner, g.by[g.owner].stored}
}

func (g *ghost) reset(s *settings) {
	watched := s.variant == steady && s.recordUpdates
	*g = ghost{strict: s.isStrict(), protects: s.variant == protected, recordsUpdates: s.recordUpdates, markersSuffice: s.markersSuffice, watched: watched, by: append(g.by[:0], life{}), trust: trust{isOn: s.trust > 0}}
}

// created is told after a Node was created.
func (g *ghost) created(w *world) {
	g.by = append(g.by, life{machine: w.machine})
	switch {
	case g.strict && g.owner == 0 && g.forgot == 0:
		g.becomesOwner(w.incarnation, w.rv)
	case g.strict && g.forgot > 0 && g.founder == 0 && !w.record.hasLabels():
		g.founder = w.incarnation
	case g.founder == 0 && !w.record.hasLabels() && slices.ContainsFunc(w.queue, g.founds):
		g.founder = w.incarnation - 1 // what is stored is of before
	}
}

// founds says whether a transaction makes a record if there is none.
func (g *ghost) founds(t *storedTxn) bool {
	return (t.Type != txn.Added || t.FoundsRecord) && number(t.Revision.String()) > g.forgot && !g.by[incarnationOf(t.UID)].isLoose
}

// released is told after a Node was deleted by the write that took its finalizer away: now its labels are stored, but for
// an edit in the very moment, which is stored later.
func (g *ghost) released(w *world, isEditedLate, isOvertaken bool) {
	last := w.events[len(w.events)-1]
	l := &g.by[last.incarnation]
	if isOvertaken { // what the decision went by was removed after it
		l.isLoose, g.founder = true, 0
		return
	}
	l.stored = last.rv
	own, _ := split(last.node.Labels)
	switch {
	case !w.record.hasLabels():
		w.breaks(errBrokeP1, "%s is let go, and nothing is saved", last.node.UID)
	case l.owns > 0 && g.owner == last.incarnation && !isEditedLate && !maps.Equal(own, plain(w.record.Labels)):
		w.breaks(errBrokeP1, "%s is let go with %v, and saved are %v", last.node.UID, own, w.record.Labels)
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
	l.stored = max(l.stored, number(t.Revision.String()))
	l.isEnded = l.isEnded || t.Type == txn.Deleted
	if t.Type == txn.Added && !l.isAdded {
		l.isAdded, l.floor = true, g.by[g.owner].stored
	}
}

// restores is told before a restore.
func (g *ghost) restores(w *world, read *metav1.PartialObjectMetadata, wanted map[string]string) {
	g.givesTrust(w, read, wanted)
	own, _ := split(read.Labels)
	given, _ := split(wanted)
	if g.trust.isOn && g.owns(w) && maps.Equal(own, given) {
		return // it has its other labels, and gets this one, or has it, too
	}
	if g.owns(w) {
		w.breaks(errBrokeP3, "%s has %v, and gets %v", read.UID, own, given)
		return
	}
	live := cameWith(read)
	g.checkMachinesWord(w, read.UID, live, given)
	if !g.had(w, g.by[w.incarnation].floor, g.gives(w, live, given)) {
		w.breaks(errBrokeP1, "%s gets %v, which u%d did not have in the end", read.UID, given, g.owner)
	}
}

// gives returns whether a node that came with some labels is given these by a restore of a state of the owner.
func (g *ghost) gives(w *world, live labels.Side, given map[string]string) func(*metav1.PartialObjectMetadata, map[string]string) bool {
	return func(n *metav1.PartialObjectMetadata, saved map[string]string) bool {
		return slices.ContainsFunc(g.sidesOf(w, n, saved), func(side labels.Side) bool { return maps.Equal(given, policy.Restored(live, side)) })
	}
}

// sidesOf are what the record may say of a state of the owner.
func (g *ghost) sidesOf(w *world, n *metav1.PartialObjectMetadata, saved map[string]string) (sides []labels.Side) {
	side := labels.Side{Labels: saved, Machine: agents.Machine(n), Unclear: agents.Unclear(n)}
	// Where the end of a protected Node overtakes the word of a watcher, a taint that is there again may be anybody's.
	_, isThereAgain := saved[agentTaint]
	if !g.knowsRemoval(w, number(n.ResourceVersion)) || g.protects && isThereAgain {
		sides = append(sides, side)
		if side.Unclear != "" && g.haveSaid(g.owner, saved[w.agentKey]) {
			sides = append(sides, labels.Side{Labels: saved, Machine: side.Unclear})
		}
	}
	if (g.overruled || g.withdrawn) && side.Machine == "" { // it is unknown if no watcher saw what the agents had said before
		side.Overruled = labels.Keys(w.agentKey)
		sides = append(sides, side)
	}
	return sides
}

// agentsSay is told after the agents of the live incarnation have said something.
func (g *ghost) agentsSay(w *world, value string) {
	l := &g.by[w.incarnation]
	l.said = append(l.said, value)
}

// haveSaid says whether the agents of an incarnation have ever said this.
func (g *ghost) haveSaid(incarnation int, value string) bool {
	return slices.Contains(g.by[incarnation].said, value)
}

// hearsOfRemoval is told before a transaction is stored. It counts what must have its effect: no later state is stored.
func (g *ghost) hearsOfRemoval(w *world, t txn.Transaction) {
	l, rv := &g.by[incarnationOf(t.UID)], number(t.Revision.String())
	if rv < l.removed || t.Withdrawn != "" { // it may say, or says, that agents withdrew the key
		l.removed = 0
		return
	}
	_, isThere := t.Labels[w.agentKey]
	if !g.recordsUpdates || isThere || (g.protects || t.Overruled == "") && w.lastStored(t.UID).Machine == "" {
		return
	}
	if t.Overruled == "" && !labels.IsLabel(w.agentKey) {
		return // that one is gone says nothing by itself: the watcher may not see any
	}
	isLate := w.record.hasLabels() && lastSeen(w.record.Record) >= rv ||
		slices.ContainsFunc(w.queue, func(other *storedTxn) bool { return other.Revision.After(t.Revision) })
	if !isLate {
		l.removed = rv
	}
}

// knowsRemoval says whether it must be known that a person has removed the key of the agents from a state of the owner.
func (g *ghost) knowsRemoval(w *world, rv int) bool {
	l := g.by[g.owner]
	if l.removed == 0 || l.owns == 0 || l.removed <= l.owns || rv < l.removed || l.isLoose {
		return false
	}
	return !slices.ContainsFunc(w.events, func(e event) bool { // they say it again
		return e.incarnation == g.owner && e.rv > l.removed && e.rv <= rv && agents.Machine(e.node) != ""
	})
}

// checkMachinesWord is for where no person has ever written on the key of the agents.
func (g *ghost) checkMachinesWord(w *world, uid types.UID, live labels.Side, given map[string]string) {
	before, isThere := live.Labels[w.agentKey]
	after, isGiven := given[w.agentKey]
	if w.agentKey == agentTaint && !isThere {
		return // it is mostly unclear who set the former one, which is put back then
	}
	if !g.overruled && !g.withdrawn && (isThere != isGiven || before != after) {
		w.breaks(errBrokeP7, "%s has %v, and gets %v", uid, live.Labels, given)
	}
}

// restored is told after a restore.
func (g *ghost) restored(w *world) {
	if g.trust.isOn && g.owns(w) {
		return // it had its labels but for the trust label
	}
	g.by[w.incarnation].restored, g.by[w.incarnation].asked = w.rv, nil
	if g.strict && !g.by[g.owner].isLoose { // whose end may be stored once more, and is later then than the record that was left
		g.becomesOwner(w.incarnation, w.rv)
	}
}

// noted is told that the record has a note of a restore, or labels that came after it. If a watcher that was away records
// late what was before the restore, that is done only then, and done again until then.
func (g *ghost) noted(w *world, incarnation int) {
	if l := g.by[incarnation]; l.restored > 0 && l.owns == 0 {
		if l.asked != nil {
			g.checkAdmitted(w, incarnation, l.asked)
		}
		g.becomesOwner(incarnation, l.restored)
	}
}

// had says whether the owner had labels that may be what the next incarnation gets.
func (g *ghost) had(w *world, floor int, isRight func(n *metav1.PartialObjectMetadata, own map[string]string) bool) bool {
	for _, e := range slices.Backward(w.events) {
		if e.incarnation != g.owner {
			continue
		}
		own, _ := split(e.node.Labels)
		if e.rv < g.by[g.owner].owns || isRight(e.node, own) {
			return e.rv >= g.by[g.owner].owns
		}
		if g.strict && !g.by[g.owner].isLoose || e.rv <= floor {
			return false
		}
	}
	return false
}

// saves is told before a record is written.
func (g *ghost) saves(w *world, r record.Record) {
	g.savesTrust(w, r)
	version, source := number(r.Revision.String()), incarnationOf(r.Source)
	isFirst := !w.record.hasLabels()
	if version < g.forgot || version == g.forgot && isFirst {
		w.breaks(errBrokeP2, "%s@%s is saved, and the record was removed at %d", r.Source, r.Revision, g.forgot)
	}
	if isFirst && g.founder > 0 && source > g.founder {
		w.breaks(errBrokeP2, "the labels of %s are saved first, before those of an earlier incarnation", r.Source)
	}
	if isFirst && (!g.strict || g.forgot > 0) {
		g.becomesOwner(source, w.firstRV(source))
	}
	g.noted(w, source)
	if r.Restored.UID != "" {
		g.noted(w, incarnationOf(r.Restored.UID))
	}
	if isFirst && !g.recordsUpdates && w.node != nil && incarnationOf(w.node.UID) == source && w.node.DeletionTimestamp == nil {
		w.breaks(errBrokeP1, "the first labels of %s are saved while it lives, and no changes are recorded", r.Source)
	}
	if r.Restored.UID != "" && number(r.Restored.Revision.String()) < version {
		w.breaks(errBrokeP2, "a note of %s is older than the labels", r.Restored.UID)
	}
	if !isFirst && lastSeen(r) < lastSeen(w.record.Record) {
		w.breaks(errBrokeP2, "the record goes back from %d to %d", lastSeen(w.record.Record), lastSeen(r))
	}
	for _, e := range w.events {
		if e.rv != version {
			continue
		}
		own, _ := split(e.node.Labels)
		switch {
		case e.incarnation != source || !maps.Equal(own, plain(r.Labels)):
			w.breaks(errBrokeP2, "%v are not the labels of %s at %s", r.Labels, r.Source, r.Revision)
		case r.Restored.UID == "" && r.Machine != agents.Machine(e.node) && (r.Machine != agents.Unclear(e.node) || !g.haveSaid(source, own[w.agentKey])):
			w.breaks(errBrokeP2, "%v are not the keys of the agents of %s at %s", r.Machine, r.Source, r.Revision)
		case g.by[source].owns == 0 || g.by[source].owns > version:
			w.breaks(errBrokeP2, "%v is saved, and %s did not have its labels", r.Labels, r.Source)
		}
	}
}

// removed is told before the record is removed, by somebody who has read a Node, nil for none, when the resourceVersion was now.
func (g *ghost) removed(w *world, n *metav1.PartialObjectMetadata, now int) {
	g.trust.isUnsure = true
	for i := range g.by {
		l := &g.by[i]
		l.owns, l.removed = 0, 0
		// The record that is left may have the revision of the one before it: both have what that Node had then.
		if l.asked == nil || n == nil || l.asked.node.Labels[labels.Marker] != n.ResourceVersion {
			l.restored, l.asked = 0, nil
		}
	}
	g.owner, g.founder, g.forgot = 0, 0, now
	if n != nil {
		g.forgot = number(n.ResourceVersion)
		g.becomesOwner(incarnationOf(n.UID), g.forgot)
		l := &g.by[g.owner]
		if w.node != n {
			l.stored, l.isLoose = g.forgot, true
		}
		l.stored = max(l.stored, g.forgot)
		return
	}
	for i := 1; i < len(g.by); i++ {
		if w.firstRV(i) > now {
			g.by[i].stored, g.by[i].isLoose = 0, true
		}
	}
	if g.strict && w.node != nil {
		g.founder = w.incarnation
	}
}

// lastSeen is when an incarnation was last known to have the labels of a record.
func lastSeen(r record.Record) int {
	return max(number(r.Revision.String()), number(r.Restored.Revision.String()))
}

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
	g.checkTrust(w)
	g.checkGate(w)
	switch {
	case w.broken != nil:
	case !w.record.hasLabels():
		g.checkNoRecord(w)
	case w.node != nil && g.markersSuffice && w.node.Labels[labels.Marker] == w.record.Revision.String():
	case w.node != nil && !g.owns(w):
		w.breaks(errBrokeP4, "%s never got its labels", w.node.UID)
	case w.node != nil && !w.isNoted():
		w.breaks(errBrokeP4, "the record does not say that %s has its labels", w.node.UID)
	case w.node != nil && !g.recordsUpdates:
	case w.node != nil:
		own, marker := split(w.node.Labels)
		if !maps.Equal(own, plain(w.record.Labels)) {
			w.breaks(errBrokeP1, "saved are %v, the node has %v (marker %q)", w.record.Labels, own, marker)
		}
	case !g.had(w, g.by[g.owner].stored, func(_ *metav1.PartialObjectMetadata, own map[string]string) bool {
		return maps.Equal(own, plain(w.record.Labels))
	}):
		w.breaks(errBrokeP1, "saved are %v, which u%d did not have in the end", w.record.Labels, g.owner)
	}
}

// checkNoRecord is for the end if nothing was ever saved.
func (g *ghost) checkNoRecord(w *world) {
	switch {
	case w.incarnation == 0:
	case g.forgot > 0:
		if w.node != nil && g.recordsUpdates || g.strict && g.founder > 0 && (w.node == nil || w.incarnation > g.founder) {
			w.breaks(errBrokeP1, "nothing is saved of what came after the removal")
		}
	case w.node != nil && g.recordsUpdates, w.node == nil && g.strict, w.incarnation > 1 && g.strict:
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
