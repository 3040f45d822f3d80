package simulation

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
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
	errDropped = errors.New("a malformed object is kept")
	errNoisy   = errors.New("a restart of every watcher on a quiet cluster records nothing")
)

// ghost computes the expected labels. It observes all writes immediately, and does not influence
// the actors.
//
// An incarnation owns its labels from the moment when they are restored onto it; the first
// incarnation owns them from its creation. The next incarnation must get the final labels of the
// last owner, with what users have edited on incarnations that ended before they had them. If all
// watchers were down, these may be unknown; then the next incarnation may get any labels that the last
// owner had, but none older than its stored labels.
type ghost struct {
	strict         bool // no change may be lost
	recordsUpdates bool
	protects       bool // processors save the end of a Node before its transactions in the queue
	markersSuffice bool // a Node with the marker of the record owns its labels even if the record does not note it
	renews         bool // the datastore is replaced: an end that is the first event since saves no edits
	admits         bool // the webhook may admit a Node before the edits of a protected one are saved
	watched        bool // each event is compared with its predecessor, as a watcher does that has seen both

	owner     int      // the last incarnation that owned its labels; 0: none yet
	founder   int      // the last incarnation that the first record may belong to; 0: any
	overruled bool     // a user has ever written the key of the agents
	withdrawn bool     // agents have ever withdrawn their label, which may look like an edit by a user
	hasCopies bool     // a person has created a Node from a copy
	policies  []string // the values that admission policies have set
	trust     trust

	guarded      bool // schedules use guarded labels
	guardsUnsure bool // a record was removed, or a change left no trace
	guards       [trustIndex + 1]guard

	folded  int               // the revision of the latest end whose edits are saved
	forgot  int               // events up to this revision do not count, since the record was removed
	ending  ending            // set while a processor saves the end of a Node
	heard   []event           // what the processor that writes has seen of the Node since it started
	applied []txn.Transaction // those that the processor which restores applies
	by      []life            // the incarnations, starting at index 1
}

// life is the ghost's state of one incarnation. All numbers are resourceVersions; 0 means not yet.
type life struct {
	restored    int     // the last restore onto it
	owns        int     // from when it owns its labels
	noted       int     // when a record first noted it
	stored      int     // its newest state that a watcher has stored
	floor       int     // the stored state of the last owner when the addition of this incarnation was first recorded
	removed     int     // from when it is stored that a user has removed the key of the agents; 0: not stored
	machine     machine // its machine
	isAdded     bool
	isEnded     bool // a watcher has stored its end
	endStoredAt int  // the revision before that; 0 if the watcher left it out
	isLoose     bool // it existed during a removal of the record, which may have overtaken its stored states

	set     []string    // the values that its agents have set
	touched labels.Keys // the keys that users have set, changed or removed on it
	edited  labels.Keys // those in the end that a watcher stored first

	released    int  // the state that was saved when it was released, if users edited it in that moment
	mayLackEdit bool // that edit may be lost
	isPassed    bool // its edits may be lost: those of a later one were saved first

	addedAt, endedAt int // the revisions before its addition, and its end with its edits, were first stored

	asked *creation // its admission, if it had its labels then; nil: they are restored later
}

// ending is what a processor can know about earlier incarnations when it saves the end of a Node:
// the stored state of the owner when the processor read the queue, and the revision then. The zero value
// means that no end is being saved.
type ending struct{ incarnation, owner, stored, at int }

// endingOf returns the ending of a processor that reads the queue now.
func (g *ghost) endingOf(w *world, uid types.UID) ending {
	return ending{incarnationOf(uid), g.owner, g.by[g.owner].stored, w.rv}
}

func (g *ghost) reset(s *settings) {
	watched := s.variant == steady && s.recordUpdates
	*g = ghost{strict: s.isStrict(), protects: s.variant == protected, recordsUpdates: s.recordUpdates, markersSuffice: s.markersSuffice, watched: watched, renews: s.replaces > 0, admits: s.variant == protected && s.webhook > 0, by: append(g.by[:0], life{}), trust: trust{isOn: s.trust > 0}, guarded: s.guarded}
}

// created must be called after a Node was created.
func (g *ghost) created(w *world) {
	g.by = append(g.by, life{machine: w.machine})
	switch {
	case g.strict && g.owner == 0 && g.forgot == 0:
		g.becomesOwner(w.incarnation, w.rv)
		w.applier.inherits(w, w.incarnation)
	case g.strict && g.forgot > 0 && g.founder == 0 && !w.record.hasLabels():
		g.founder = w.incarnation
	case g.founder == 0 && !w.record.hasLabels() && slices.ContainsFunc(w.queue, g.founds):
		g.founder = w.incarnation - 1 // the stored transactions are older
	}
}

// founds reports whether a transaction would create the first record.
func (g *ghost) founds(t *storedTxn) bool {
	return (t.Type != txn.Added || t.FoundsRecord) && number(t.Revision.String()) > g.forgot && !g.by[incarnationOf(t.UID)].isLoose
}

// released must be called after the write that removed the finalizer deleted a Node. Its labels
// must be stored by now, except an edit during the release, which is stored later.
func (g *ghost) released(w *world, isEditedLate, isOvertaken bool) {
	last := w.events[len(w.events)-1]
	l := &g.by[last.incarnation]
	if isOvertaken { // the record was removed after the decision
		l.isLoose, g.founder = true, 0
		return
	}
	l.stored = last.rv
	if isEditedLate {
		l.released = lastSeen(w.record.Record)
	}
	own, _ := split(last.node.Labels)
	switch {
	case !w.record.hasLabels():
		w.breaks(errBrokeP1, "%s is released, and nothing is saved", last.node.UID)
	case l.owns > 0 && g.owner == last.incarnation && !isEditedLate && !maps.Equal(own, plain(w.record.Labels)):
		w.breaks(errBrokeP1, "%s is released with %v, and saved are %v", last.node.UID, own, w.record.Labels)
	}
}

func (g *ghost) becomesOwner(incarnation, rv int) {
	g.owner = incarnation
	g.by[incarnation].owns = rv
}

// owns reports whether the live incarnation owns its labels.
func (g *ghost) owns(w *world) bool { return g.by[w.incarnation].owns > 0 }

// puts must be called before a transaction is stored, and when a watcher skips a redundant
// transaction.
func (g *ghost) puts(t txn.Transaction) {
	l := &g.by[incarnationOf(t.UID)]
	if rv := number(t.Revision.String()); !g.isLate(t.UID, rv) {
		l.stored = max(l.stored, rv)
	}
	l.isEnded = l.isEnded || t.Type == txn.Deleted
	if t.Type == txn.Added && !l.isAdded {
		l.isAdded, l.floor = true, g.by[g.owner].stored
	}
}

// restores must be called before a restore.
func (g *ghost) restores(w *world, read *nodeview.Node, wanted map[string]string) {
	g.givesTrust(w, read, wanted)
	g.givesGuarded(w, read, wanted)
	own, _ := split(read.Labels)
	given, _ := split(wanted)
	if (g.trust.isOn || g.guarded) && g.owns(w) && maps.Equal(own, given) {
		return // it owns its other labels, and gets or has the trust label or a guarded one
	}
	if g.owns(w) {
		w.breaks(errBrokeP3, "%s has %v, and gets %v", read.UID, own, given)
		return
	}
	g.checkAgentKey(w, read.UID, cameWith(read), given)
	if !g.had(w, g.by[w.incarnation].floor, g.gives(w, w.incarnation, w.livesOf(read), given)) {
		w.breaks(errBrokeP1, "%s gets %v, which u%d did not have in the end", read.UID, given, g.owner)
	}
}

// gives returns a function that reports whether restoring a state of the owner, with the edits of
// the incarnations since, onto the next one, which has one of the live sides, results in the given
// labels.
func (g *ghost) gives(w *world, next int, lives []labels.Side, given map[string]string) func(*nodeview.Node, map[string]string) bool {
	return func(n *nodeview.Node, saved map[string]string) bool {
		return slices.ContainsFunc(g.withEdits(w, next, g.sidesOf(w, n, saved)), func(side labels.Side) bool {
			return slices.ContainsFunc(lives, func(live labels.Side) bool { return maps.Equal(given, policy.Restored(live, side)) })
		})
	}
}

// livesOf returns what a restore may start from. What managedFields or the queue show as edited must
// stay; what else users have changed since the Node was created may.
func (w *world) livesOf(read *nodeview.Node) []labels.Side {
	live := cameWith(read)
	live.Edited = read.Edited
	if w.ghost.showsEdit(read, w.personKey) {
		live.Edited = live.Edited.Union(labels.Keys(w.personKey))
	}
	if w.applier.isOn && w.appliedAt(read).isInherited { // it was given back
		live.Edited = live.Edited.Without(labels.Keys(w.personKey))
	}
	lives := []labels.Side{live}
	for _, key := range []string{w.personKey, w.agentKey} {
		if live.Machine.Has(key) || live.Unclear.Has(key) || !w.hasChanged(read.UID, key) || !w.ghost.by[incarnationOf(read.UID)].touched.Has(key) {
			continue
		}
		for _, live := range slices.Clone(lives) {
			live.Edited = live.Edited.Union(labels.Keys(key))
			lives = append(lives, live)
		}
	}
	return lives
}

// showsEdit reports whether users have edited a key of a Node by the transactions that a processor
// applies. An annotation that the Node has may be missing in some of them. If the Node was restored
// since, and has another value, that may be the restore's.
func (g *ghost) showsEdit(read *nodeview.Node, key string) (isEdited bool) {
	live, isLive := read.Labels[key]
	if isLive && !labels.IsLabel(key) {
		return false
	}
	var former, marker string
	var wasThere, isLater bool
	for _, t := range g.applied {
		if t.UID != read.UID {
			continue
		}
		value, isThere := t.Labels[key]
		isChanged := wasThere != isThere && (wasThere || labels.IsLabel(key)) || wasThere && isThere && former != value
		isRestored := isLater && t.Restored && t.Marker != marker
		if t.Ahead || t.IsRequest() || t.Machine.Has(key) || t.Unclear.Has(key) || t.Withdrawn.Has(key) || isRestored && isChanged {
			return false
		}
		isEdited = isEdited || isLater && isChanged
		former, wasThere, isLater, marker = value, isThere, true, t.Marker
	}
	isRestoredSince := read.IsRestored() && read.Marker != marker
	return isEdited && (!isRestoredSince || wasThere == isLive && former == live)
}

// hasChanged reports whether a key of an incarnation has changed since its creation.
func (w *world) hasChanged(uid types.UID, key string) bool {
	var first *nodeview.Node
	for _, e := range w.events {
		switch {
		case e.node.UID != uid:
		case first == nil:
			first = e.node
		default:
			former, wasThere := first.Labels[key]
			if value, isThere := e.node.Labels[key]; wasThere != isThere || former != value {
				return true
			}
		}
	}
	return false
}

// sidesOf returns the possible contents of the record for a state of the owner.
func (g *ghost) sidesOf(w *world, n *nodeview.Node, saved map[string]string) (sides []labels.Side) {
	side := labels.Side{Labels: saved, Machine: n.Machine, Unclear: n.Unclear}
	// If the end of a protected Node overtakes the watcher's transaction, the setter of a taint that
	// is present again is unknown.
	_, isThereAgain := saved[agentTaint]
	if !g.mustKnowRemoval(w, number(n.Revision.String())) || g.protects && isThereAgain {
		sides = append(sides, side)
		if value, isThere := saved[w.agentKey]; isThere && plainKeys(side.Machine) == "" {
			if g.isCopied(w, g.owner, value) {
				sides = append(sides, labels.Side{Labels: saved, Machine: labels.Keys(w.agentKey)})
			}
			if slices.Contains(g.policies, value) { // a restore may own it since
				sides = append(sides, labels.Side{Labels: saved, Unclear: labels.Keys(w.agentKey)})
			}
		}
		if side.Unclear != "" && g.hasSet(g.owner, saved[w.agentKey]) {
			sides = append(sides, labels.Side{Labels: saved, Machine: side.Unclear})
		}
	}
	if (g.overruled || g.withdrawn) && plainKeys(side.Machine) == "" { // unknown if no watcher saw the previous values of the agents
		side.Overruled = labels.Keys(w.agentKey)
		sides = append(sides, side)
	}
	return sides
}

// copies must be called before a person creates a Node from a copy of the former one. If its last
// state may be unknown, the value counts as the person's.
func (g *ghost) copies(w *world) {
	g.hasCopies = true
	isKnown := g.strict && g.owner == w.incarnation && g.by[g.owner].owns > 0 && g.forgot == 0
	g.overruled = g.overruled || !isKnown
}

// isCopied reports whether an incarnation may have come with a value that the agents of an earlier
// one had set. An edit to that value that comes before the record notes the incarnation looks the
// same, which docs/design.md accepts.
func (g *ghost) isCopied(w *world, incarnation int, value string) bool {
	noted := g.by[incarnation].noted
	return slices.ContainsFunc(g.by[:incarnation], func(l life) bool { return slices.Contains(l.set, value) }) &&
		slices.ContainsFunc(w.events, func(e event) bool {
			had, isThere := e.node.Labels[w.agentKey]
			return e.incarnation == incarnation && (noted == 0 || e.rv <= noted) && isThere && had == value && machineOf(e.node) == ""
		})
}

// agentsSet must be called after the agents of the live incarnation have set a value.
func (g *ghost) agentsSet(w *world, value string) {
	l := &g.by[w.incarnation]
	l.set = append(l.set, value)
}

// hasSet reports whether the agents of an incarnation have ever set a value.
func (g *ghost) hasSet(incarnation int, value string) bool {
	return slices.Contains(g.by[incarnation].set, value)
}

// recordsRemoval must be called before a transaction is stored. It counts only removals that must
// have an effect, because no later state is stored.
func (g *ghost) recordsRemoval(w *world, t txn.Transaction) {
	l, rv := &g.by[incarnationOf(t.UID)], number(t.Revision.String())
	if rv < l.removed || plainKeys(t.Withdrawn) != "" { // the agents have withdrawn the key, or may have
		l.removed = 0
		return
	}
	_, isThere := t.Labels[w.agentKey]
	if !g.recordsUpdates || isThere || (g.protects || plainKeys(t.Overruled) == "") && plainKeys(w.lastStored(t.UID).Machine) == "" {
		return
	}
	if plainKeys(t.Overruled) == "" && !labels.IsLabel(w.agentKey) {
		return // the absence alone proves nothing: the watcher may not see such keys
	}
	isLate := w.record.hasLabels() && lastSeen(w.record.Record) >= rv ||
		slices.ContainsFunc(w.queue, func(other *storedTxn) bool { return other.Revision.After(t.Revision) })
	if !isLate {
		l.removed = rv
	}
}

// mustKnowRemoval reports whether a user's removal of the key of the agents from a state of the
// owner must be known.
func (g *ghost) mustKnowRemoval(w *world, rv int) bool {
	l := g.by[g.owner]
	if l.removed == 0 || l.owns == 0 || l.removed <= l.owns || rv < l.removed || l.isLoose {
		return false
	}
	return !slices.ContainsFunc(w.events, func(e event) bool { // the agents have set it again
		return e.incarnation == g.owner && e.rv > l.removed && e.rv <= rv && machineOf(e.node) != ""
	})
}

// checkAgentKey checks the key of the agents in schedules in which no user has ever written it.
func (g *ghost) checkAgentKey(w *world, uid types.UID, live labels.Side, given map[string]string) {
	before, isThere := live.Labels[w.agentKey]
	after, isGiven := given[w.agentKey]
	if (w.agentKey == agentTaint || len(g.policies) > 0) && !isThere {
		return // the setter of the previous value may be unclear, and it is restored
	}
	if g.forgot > 0 && g.wasGiven(w) {
		return // only the removed record knew who had set it
	}
	if !g.overruled && !g.withdrawn && (isThere != isGiven || before != after) {
		w.breaks(errBrokeP7, "%s has %v, and gets %v", uid, live.Labels, given)
	}
}

// wasGiven reports whether the webhook gave the owner the key of the agents.
func (g *ghost) wasGiven(w *world) bool {
	return slices.ContainsFunc(w.events, func(e event) bool {
		return e.incarnation == g.owner && e.node.Admitted.Has(w.agentKey)
	})
}

// restored must be called after a restore.
func (g *ghost) restored(w *world) {
	if (g.trust.isOn || g.guarded) && g.owns(w) {
		return // it already owned its labels except the trust label or a guarded one
	}
	g.by[w.incarnation].restored, g.by[w.incarnation].asked = w.rv, nil
	if r := w.record; r.hasLabels() && number(r.Revision.String()) == g.folded && number(w.node.Marker) < g.folded {
		return // from before edits that are saved by now: it is not noted, and is done again
	}
	if g.strict && !g.by[g.owner].isLoose { // the end of a loose owner may be stored again, later than the remaining record
		g.becomesOwner(w.incarnation, w.rv)
		w.applier.inherits(w, w.incarnation)
	}
}

// noted must be called when the record has a note of a restore, or later labels. If a watcher that
// was down records events from before the restore, the incarnation owns its labels only from then
// on, and the restore may be repeated until then.
func (g *ghost) noted(w *world, incarnation int) {
	if l := &g.by[incarnation]; l.noted == 0 {
		l.noted = w.rv
	}
	if l := g.by[incarnation]; l.restored > 0 && l.owns == 0 {
		if l.asked != nil {
			g.checkAdmitted(w, incarnation, l.asked)
			g.admitsGuarded(l.asked.node.Labels)
		}
		g.becomesOwner(incarnation, l.restored)
		w.applier.inherits(w, incarnation)
	}
}

// had reports whether the owner had labels that the next incarnation may get.
func (g *ghost) had(w *world, floor int, isRight func(n *nodeview.Node, own map[string]string) bool) bool {
	for _, e := range slices.Backward(w.events) {
		if e.incarnation != g.owner {
			continue
		}
		own, _ := split(e.node.Labels)
		if e.rv < g.by[g.owner].owns || isRight(e.node, own) {
			return e.rv >= g.by[g.owner].owns
		}
		if g.strict && !g.by[g.owner].isLoose && !g.by[g.owner].mayLackEdit || e.rv <= floor {
			return false
		}
	}
	return false
}

// saves must be called before a record is written.
func (g *ghost) saves(w *world, r record.Record) {
	g.savesTrust(w, r)
	version, source := number(r.Revision.String()), incarnationOf(cmp.Or(r.Source, r.Restored.UID))
	isRenewed := r.Source == "" // its labels are those of an earlier history, at no revision of this one
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
		g.notesEnd(w, r)
	}
	if isFirst && !g.recordsUpdates && w.node != nil && incarnationOf(w.node.UID) == source && !w.node.IsDeleting() {
		w.breaks(errBrokeP1, "the first labels of %s are saved while it lives, and no changes are recorded", r.Source)
	}
	if r.Restored.UID != "" && number(r.Restored.Revision.String()) < version && !isRenewed {
		w.breaks(errBrokeP2, "a note of %s is older than the labels", r.Restored.UID)
	}
	if !isFirst && lastSeen(r) < lastSeen(w.record.Record) && !isRenewed {
		w.breaks(errBrokeP2, "the record goes back from %d to %d", lastSeen(w.record.Record), lastSeen(r))
	}
	for _, e := range w.events {
		if e.rv != version || isRenewed {
			continue
		}
		own, _ := split(e.node.Labels)
		switch {
		case g.savesEdits(w, e, r):
		case e.incarnation != source || !maps.Equal(own, plain(r.Labels)):
			w.breaks(errBrokeP2, "%v are not the labels of %s at %s", r.Labels, r.Source, r.Revision)
		case r.Restored.UID == "" && plainKeys(r.Machine) != machineOf(e.node) && (plainKeys(r.Machine) == "" || !g.isCopied(w, source, own[w.agentKey])) && (plainKeys(r.Machine) != e.node.Unclear || !g.hasSet(source, own[w.agentKey])):
			w.breaks(errBrokeP2, "%v are not the keys of the agents of %s at %s", r.Machine, r.Source, r.Revision)
		case g.by[source].owns == 0 || g.by[source].owns > version:
			w.breaks(errBrokeP2, "%v is saved, and %s did not have its labels", r.Labels, r.Source)
		}
	}
}

// removed must be called before a record is removed, by an actor who read the Node, nil for none,
// at resourceVersion now.
func (g *ghost) removed(w *world, n *nodeview.Node, now int) {
	g.trust.isUnsure, g.guardsUnsure = true, true
	g.overruled = g.overruled || g.hasCopies // the remaining record does not know the copy
	for i := range g.by {
		l := &g.by[i]
		l.owns, l.removed = 0, 0
		// The remaining record may have the revision of its predecessor: both contain the labels of the
		// Node at that time.
		if l.asked == nil || n == nil || l.asked.node.Marker != n.Revision.String() {
			l.restored, l.asked = 0, nil
		}
	}
	g.owner, g.founder, g.forgot = 0, 0, now
	if n != nil {
		g.forgot = number(n.Revision.String())
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

// lastSeen returns the last revision at which an incarnation is known to have had the labels of a
// record.
func lastSeen(r record.Record) int {
	if r.Source == "" { // of an earlier history
		return number(r.Restored.Revision.String())
	}
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

// check compares the final state with the expected one.
func (g *ghost) check(w *world) {
	g.checkTrust(w)
	g.checkGuarded(w)
	g.checkGate(w)
	w.applier.check(w)
	switch {
	case w.broken != nil:
	case !w.record.hasLabels():
		g.checkNoRecord(w)
	case w.node != nil && g.markersSuffice && w.node.Marker == w.record.Revision.String():
	case w.node != nil && w.replacedAt == len(w.events):
		// Someone has replaced the record of a quiet Node. Its next event is saved, and until then
		// watchers report it.
	case w.node != nil && !g.owns(w):
		w.breaks(errBrokeP4, "%s never got its labels", w.node.UID)
	case w.node != nil && !w.isNoted():
		w.breaks(errBrokeP4, "the record does not note that %s has its labels", w.node.UID)
	case w.node != nil && !g.recordsUpdates:
	case w.node != nil:
		if own := plain(w.node.Labels); !maps.Equal(own, plain(w.record.Labels)) {
			w.breaks(errBrokeP1, "saved are %v, the node has %v (marker %q)", w.record.Labels, own, w.node.Marker)
		}
	case !g.had(w, g.by[g.owner].stored, func(_ *nodeview.Node, own map[string]string) bool {
		return slices.ContainsFunc(g.withEdits(w, w.incarnation+1, []labels.Side{{Labels: own}}), func(side labels.Side) bool {
			return maps.Equal(side.Labels, plain(w.record.Labels))
		})
	}):
		w.breaks(errBrokeP1, "saved are %v, which u%d did not have in the end", w.record.Labels, g.owner)
	}
}

// checkNoRecord checks the final state if there is no record.
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

// incarnationOf returns the number of the incarnation with a UID. The first is 1.
func incarnationOf(uid types.UID) int { return number(string(uid[1:])) }

// number returns the number of a resourceVersion, or -1 if it is not a number. One of an earlier
// history has the number that it had there.
func number(rv string) int {
	n, err := strconv.Atoi(rv)
	if err != nil {
		return -1
	}
	return n % historyOffset
}
