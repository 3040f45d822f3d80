package simulation

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/txn"
)

// maxAttempts is how often a processor begins anew at once after a conflict.
const maxAttempts = 10

// processorActor is a processor without locks. Its methods are those of internal/processor, call by call.
type processorActor struct {
	actor

	// The caches are watches of their own: each may be behind the others, and all of them behind the API server.
	queue    []*storedTxn
	record   *storedRecord
	node     *metav1.PartialObjectMetadata
	position int // of the next event of the Node

	isEdited bool              // the Node was edited while it was being deleted
	late     []txn.Transaction // the ends of such Nodes, until they are stored

	done   []int // removed, but perhaps in the cache for a moment
	isIdle bool
}

// known is what was read or written since transactions were taken up, the Node before its record.
type known struct {
	node        *preserve.Node
	isNodeRead  bool
	stored      *storedRecord
	hasStored   bool // stored may be nil: there is no record
	mustBeFresh bool
}

// down forgets all that a process has in its memory.
func (a *processorActor) down() {
	a.done, a.late, a.isIdle = a.done[:0], a.late[:0], false
	a.position = 0
}

// run is one life of a processor.
func (a *processorActor) run() {
	a.queue, a.record, a.node = a.world.queue, a.world.record, a.world.node
	a.position = len(a.world.events)
	a.isEdited = a.node != nil && a.node.DeletionTimestamp != nil
	for {
		a.pause()
		a.refresh()
		if a.settings.variant == protected && a.protect() {
			continue
		}
		groups := a.groups()
		a.isIdle = len(groups) == 0
		if !a.isIdle {
			a.drain(groups)
		}
	}
}

// refresh brings the caches up to date.
func (a *processorActor) refresh() {
	if !a.choices.happens(a.settings.stale) {
		a.record = a.world.record
	}
	if !a.choices.happens(a.settings.stale) {
		a.queue = a.world.queue
	}
	if !a.choices.happens(a.settings.stale) {
		a.watch()
	}
}

// watch takes what the events of the Node show.
func (a *processorActor) watch() {
	for _, e := range a.world.events[a.position:] {
		a.position++
		before := a.node
		switch isKnown := before != nil && before.UID == e.node.UID; {
		case !e.isDelete:
			isChanged := !isKnown || !maps.Equal(before.Labels, e.node.Labels)
			a.isEdited = a.isEdited && isKnown || e.node.DeletionTimestamp != nil && isChanged
			a.node = e.node
			continue
		case a.isEdited && isKnown && !a.mutant.ignoresLateEdits:
			a.late = append(a.late, txn.Of(txn.Deleted, e.node))
		}
		a.node, a.isEdited = nil, false
	}
}

// groups returns the transactions in the cache that are to be applied, oldest first, those together that have their effect together.
func (a *processorActor) groups() [][]*storedTxn {
	var groups [][]*storedTxn
	var last *storedTxn
	for _, t := range a.queue {
		switch {
		case slices.Contains(a.done, t.uid):
			continue
		case last != nil && a.mutant.newestFirst:
			groups = [][]*storedTxn{{t}}
		case last != nil && a.folds(last.Transaction, t.Transaction):
			groups[len(groups)-1] = append(groups[len(groups)-1], t)
		default:
			groups = append(groups, []*storedTxn{t})
		}
		last = t
	}
	return groups
}

// folds is the real rule, or what a mutant makes of it.
func (a *processorActor) folds(first, second txn.Transaction) bool {
	if a.mutant.folds != nil {
		return a.mutant.folds(first, second)
	}
	return preserve.Folds(first, second)
}

// drain applies groups of transactions, each by its last one, and removes them. It stops at an error, to try again.
func (a *processorActor) drain(groups [][]*storedTxn) {
	for _, t := range a.applied(groups) {
		if !a.remove(t) {
			return
		}
		a.done = append(a.done, t.uid)
	}
}

// applied returns the transactions whose effect is stored.
func (a *processorActor) applied(groups [][]*storedTxn) (applied []*storedTxn) {
	var k known
	for i, group := range groups {
		last := group[len(group)-1]
		a.tell("takes %s %s@%s", last.Type, last.UID, last.ResourceVersion)
		isFollowed := i+1 < len(groups) && groups[i+1][0].Type == txn.Added
		if isFollowed && !a.mutant.savesThenReads {
			a.pause()
			k = known{node: a.world.liveNode(), isNodeRead: true}
		}
		if a.mutant.removesFirst {
			a.remove(last)
		}
		if !a.apply(last.Transaction, &k) {
			return applied
		}
		if isFollowed && a.mutant.savesThenReads {
			a.pause()
			k.node, k.isNodeRead = a.world.liveNode(), true
		}
		applied = append(applied, group...)
	}
	return applied
}

func (a *processorActor) remove(t *storedTxn) bool {
	a.pause()
	if a.mutant.removesByName {
		if at, ok := a.world.find(t.Transaction); ok {
			t = a.world.queue[at]
		}
	}
	a.checkRemoval(t)
	a.world.remove(t)
	a.tell("removes %s %s@%s", t.Type, t.UID, t.ResourceVersion)
	return !a.isLost()
}

// checkRemoval: a transaction leaves the queue only when its effect is stored, so by the same rules there is none left.
func (a *processorActor) checkRemoval(t *storedTxn) {
	if at, ok := a.world.find(t.Transaction); !ok || a.world.queue[at] != t {
		return // another processor removed it
	}
	if d := a.decision(t.Transaction, a.world.record, a.world.liveNode()); d.Action != preserve.Nothing {
		a.world.breaks(errBrokeP1, "%s %s@%s is removed, and its effect is not stored", t.Type, t.UID, t.ResourceVersion)
	}
}

// isLost says whether the answer to a write that was done does not come.
func (a *processorActor) isLost() bool {
	if !a.choices.happens(a.settings.lostWrite) {
		return false
	}
	a.tell("  and the answer is lost")
	return true
}

// outcome is that of a write.
type outcome int

const (
	isDone  outcome = iota
	isStale         // refused: what was read has changed since
	hasFailed
)

// apply makes the effect of a transaction stored. False: an error, to be tried again later.
func (a *processorActor) apply(t txn.Transaction, k *known) bool {
	for range maxAttempts {
		stored, node, isFresh := a.read(t, k)
		d := a.decision(t, stored, node)
		if d.Action == preserve.Nothing && !isFresh && !a.mutant.dropsOnCache {
			k.mustBeFresh = true
			continue
		}
		after, result := a.carryOut(t, stored, node, d)
		k.stored, k.hasStored = after, result == isDone && (isFresh || d.Action != preserve.Nothing)
		if t.Type == txn.Added {
			k.node, k.isNodeRead = nil, false
		}
		switch result {
		case isDone:
			k.mustBeFresh = false
			return true
		case hasFailed:
			return false
		case isStale:
			a.tell("  conflict")
			*k = known{mustBeFresh: true}
		}
	}
	return false
}

// decision is the real one, or what a mutant makes of it.
func (a *processorActor) decision(t txn.Transaction, stored *storedRecord, node *preserve.Node) preserve.Decision {
	d := preserve.Decide(t, stored.get(), node, policy)
	if a.mutant.decide != nil {
		d = a.mutant.decide(t, stored.get(), node, d)
	}
	return d
}

// read reads the Node before its record, unless they are known.
func (a *processorActor) read(t txn.Transaction, k *known) (stored *storedRecord, node *preserve.Node, isFresh bool) {
	if k.hasStored && (t.Type != txn.Added || k.isNodeRead) {
		return k.stored, k.node, true
	}
	cached := a.record
	if !k.mustBeFresh && (t.Type != txn.Added || cached == nil) {
		return cached, nil, false
	}
	if a.mutant.recordFirst {
		stored = a.world.record
	}
	if t.Type == txn.Added {
		a.pause()
		node = a.world.liveNode()
	}
	switch {
	case a.mutant.restoresFromCache && !k.mustBeFresh:
		return cached, node, true
	case a.mutant.recordFirst:
		return stored, node, true
	}
	a.pause()
	return a.world.record, node, true
}

// carryOut returns the record as it is then.
func (a *processorActor) carryOut(t txn.Transaction, stored *storedRecord, node *preserve.Node, d preserve.Decision) (*storedRecord, outcome) {
	if d.Action == preserve.Nothing {
		a.tell("  drops it: %s", d.Reason)
		return stored, isDone
	}
	a.pause()
	next := d.Record
	if d.Action == preserve.Restore {
		after, result := a.restore(t, node, d)
		if result != isDone || a.mutant.notesNothing {
			return stored, result
		}
		next = preserve.Noted(stored.Record, after)
		if a.mutant.note != nil {
			next = a.mutant.note(t, stored.Record, after, next)
		}
		a.pause()
	}
	if a.mutant.savesBlindly {
		stored = a.world.record
	}
	if !a.world.writeRecord(stored, next) {
		return nil, isStale
	}
	written := a.world.record
	a.tell("  stores %v version %s source %s restored %v", next.Labels, next.Version, next.Source, next.Restored)
	if a.isLost() {
		return nil, hasFailed
	}
	return written, isDone
}

// restore puts the labels onto the Node and returns how it left it.
func (a *processorActor) restore(t txn.Transaction, node *preserve.Node, d preserve.Decision) (preserve.Node, outcome) {
	if a.mutant.patchesBlindly && a.world.node != nil {
		node = a.world.liveNode()
	}
	rv, isPatched := a.world.patchNode(node, d)
	if !isPatched {
		return preserve.Node{}, isStale
	}
	a.tell("  restores %s@%s: %v version %s", t.UID, rv, d.Labels, d.Marker)
	if a.isLost() {
		return preserve.Node{}, hasFailed
	}
	return preserve.Node{UID: t.UID, ResourceVersion: rv, Labels: d.Labels}, isDone
}

// protect gives the Node in the cache the finalizer, or lets one go that waits for it. False: there is nothing to do.
func (a *processorActor) protect() bool {
	n := a.node
	switch {
	case len(a.late) > 0:
		a.tell("saw the end of %s, which was edited late", a.late[0].UID)
		if a.apply(a.late[0], &known{}) {
			a.late = a.late[1:]
		}
		return true
	case n != nil && n.DeletionTimestamp == nil && !isProtected(n):
		a.pause()
		if a.world.isNode(n.UID, n.ResourceVersion) && a.world.setFinalizer(true) {
			a.tell("protects %s", nodeText(a.world.node))
		}
		return true
	case waitsForFinalizer(n):
		a.letGo()
		return a.world.node != nil // the cache may be behind: then there is other work
	}
	return false
}

// letGo stores the last labels of a Node that waits for it, and takes the finalizer away.
func (a *processorActor) letGo() {
	for range maxAttempts {
		a.pause()
		n := a.world.node
		if a.mutant.letsGoCached {
			n = a.node
		}
		if !waitsForFinalizer(n) {
			return
		}
		a.tell("lets %s go", nodeText(n))
		if !a.mutant.letsGoFirst && !a.apply(txn.Of(txn.Deleted, n), &known{}) {
			return
		}
		a.pause()
		if a.world.node == nil || !a.mayLetGo(n) {
			a.tell("  conflict")
			continue
		}
		if a.choices.happens(a.settings.lateEdit) { // between the API server's check and its delete
			a.world.editLate()
			a.tell("  %s is edited in this moment: %v", nodeText(a.world.node), a.world.node.Labels)
		}
		a.world.setFinalizer(false)
		a.tell("  and takes the finalizer of %s away", nodeText(n))
		if a.mutant.letsGoFirst {
			a.apply(txn.Of(txn.Deleted, n), &known{})
		}
		return
	}
}

// mayLetGo says whether the Node is the one whose labels were stored.
func (a *processorActor) mayLetGo(n *metav1.PartialObjectMetadata) bool {
	if a.mutant.letsGoBlindly {
		return isProtected(a.world.node)
	}
	return a.world.isNode(n.UID, n.ResourceVersion)
}
