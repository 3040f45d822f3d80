package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const (
	nodeName  = "n"
	liveKey   = "live"
	finalizer = "nodekeeper.dev/save-labels"

	// The keys that agents and users set: a label, an annotation or a taint.
	agentLabel      = "agent"
	agentAnnotation = "annotation:agent"
	agentTaint      = "taint:agent:NoSchedule"

	agentKeys labels.Keys = agentLabel + "," + agentAnnotation + "," + agentTaint // whichever is present
)

// policy is the policy of the processors.
var policy = func() labels.Policy {
	live, err := labels.ParsePatterns(liveKey)
	if err != nil {
		panic(err)
	}
	bound, err := labels.ParseMachineBound(stateKey)
	if err != nil {
		panic(err)
	}
	return labels.Policy{Mode: labels.Replace, Live: live, MachineBound: bound, Preserves: func(string) bool { return true }}
}()

// event is one event of a watch on Nodes. The objects that it points to are immutable.
type event struct {
	node        *nodeview.Node
	incarnation int
	rv          int
	isDelete    bool
	applied     // the owners of the label of users
}

// storedRecord is a record in the API server. The objects that it points to are immutable.
type storedRecord struct {
	record.Record
	object *corev1.ConfigMap // represents its resourceVersion
}

func newStoredRecord(r record.Record) *storedRecord {
	return &storedRecord{Record: r, object: &corev1.ConfigMap{}}
}

// hasLabels reports whether there is a record, and it is not just a floor.
func (s *storedRecord) hasLabels() bool { return s != nil && !s.Floor }

// get returns the record, or nil if there is none.
func (s *storedRecord) get() *record.Record {
	if s == nil {
		return nil
	}
	return &s.Record
}

// withheld returns the withheld labels of the record.
func (s *storedRecord) withheld() []record.Withheld {
	if s == nil {
		return nil
	}
	return s.Withheld
}

// stored returns the record as package records does.
func (s *storedRecord) stored() records.Stored {
	if s == nil {
		return records.Stored{}
	}
	return records.Stored{Record: &s.Record, Object: s.object}
}

// storedTxn is a transaction in the API server. The objects that it points to are immutable.
type storedTxn struct {
	txn.Transaction
	uid int
}

// world is the API server, with one Node, its record and its transactions.
type world struct {
	rv          int
	incarnation int // of the live or latest Node
	node        *nodeview.Node
	events      []event
	acted       time.Time // when the agents of the machine last set a value
	agentKey    string    // the key that they set
	personKey   string    // the key that only users set
	trustKey    string    // a label that belongs to a machine
	gated       bool      // the live Node has the startup taint
	closed      int       // when its gate was closed after its creation; 0: never
	record      *storedRecord
	records     []*storedRecord // all records so far, which caches may have; the current one is last
	queue       []*storedTxn    // in order; every change creates a new slice, so that caches can keep the old one
	malformed   []*malformed
	freed       []*malformed // whose names are free
	quarantined []*malformed // the copies, which have other names
	puts        int
	removals    int               // the number of removals of the record
	machine     machine           // the machine of the live or latest Node
	hasReported bool              // it has reported its identity
	members     []*member         // in the order of joining
	late        []txn.Transaction // requests whose senders have crashed
	policy      admissionPolicy
	applier     applier
	replacedAt  int // the number of events when the record was replaced by an earlier one; 0: never
	merged      int // the incarnation whose field managers were merged; 0: none yet
	lateEdit    int // the number of events at the latest end of a Node that was edited during its release

	leavesNoFloor bool // used by a mutant

	ghost  ghost
	broken error    // the first broken promise
	trace  []string // what happened, if tracing is on
	tracks bool
}

func (w *world) reset(s *settings, tracks bool) {
	*w = world{events: w.events[:0], records: append(w.records[:0], nil), tracks: tracks, ghost: w.ghost, agentKey: s.agentKey, personKey: s.personKey, trustKey: s.trustKey, applier: applier{isOn: s.applies, wanted: inGit}}
	w.ghost.reset(s)
}

func (w *world) log(format string, args ...any) {
	if w.tracks {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

func (w *world) breaks(err error, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("%w: "+format, append([]any{err}, args...)...)
		w.log("!!! %v", w.broken)
	}
}

func (w *world) nextRV() { w.rv++ }

// rvText returns a resourceVersion as text.
func rvText(rv int) string { return rvTexts[min(rv, len(rvTexts)-1)] }

// rvTexts are the texts of the first resourceVersions. No run needs more.
var rvTexts = func() (texts [20_000]string) {
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}()

// show makes n the current state of the Node, and emits an event.
func (w *world) show(n *nodeview.Node, isDelete bool) {
	if w.ghost.guarded {
		noteGuarded(n, w.acted)
	}
	if w.applier.isOn {
		w.applier.note(w, n)
	}
	w.nextRV()
	n.Revision = rev(w.rv)
	w.node = n
	w.events = append(w.events, event{node: n, incarnation: w.incarnation, rv: w.rv, isDelete: isDelete, applied: w.applier.applied})
	if isDelete {
		w.ghost.ended(w)
		w.node = nil
	}
}

// relabel changes the labels of the Node, like a user or a processor; nil changes only its
// resourceVersion.
func (w *world) relabel(change func(own map[string]string)) {
	n := *w.node
	if change != nil {
		own := everything(&n)
		change(own)
		setEverything(&n, own)
	}
	value, isThere := n.Labels[w.agentKey]
	switch {
	case w.agentKey == agentTaint: // the list of taints has been written, even if this taint has not changed
		n.Machine, n.Unclear, n.ActedAt = "", labels.Keys(agentTaint).Where(func(string) bool { return isThere }), w.acted
	case !isThere || value != w.node.Labels[w.agentKey]:
		n.Machine, n.Unclear, n.ActedAt = "", "", w.acted
	}
	former, wasThere := w.node.Labels[w.personKey]
	if now, isThere := n.Labels[w.personKey]; w.applier.isOn && (wasThere != isThere || former != now) {
		w.applier.changed(w, isThere)
	}
	w.setAdmitted(&n)
	if !w.applier.writer.keeper {
		w.ghost.touches(w, &n)
	}
	edited := w.node.Edited
	if n.Marker != w.node.Marker {
		edited = edited.Without(labels.Marker) // it is not that of a restore any more; see patch
	}
	w.setEdited(&n, edited.Union(w.visibleEdits(&n)))
	w.show(&n, false)
}

// visibleEdits returns the keys that are about to change and whose setters managedFields then show.
// They do not show edits in the second in which the Node was created: every other one.
func (w *world) visibleEdits(n *nodeview.Node) labels.Keys {
	if w.rv%2 == 0 {
		return ""
	}
	return labels.KeysOf(maps.Keys(n.Labels)).Where(func(key string) bool {
		former, wasThere := w.node.Labels[key]
		return !labels.IsTaint(key) && (!wasThere || former != n.Labels[key])
	})
}

// setEdited notes the keys of a Node that users have edited, as far as they are still there.
func (w *world) setEdited(n *nodeview.Node, edited labels.Keys) {
	n.Edited = edited.Without(edited.Missing(everything(n)))
}

// everything returns a copy of the labels of a Node, and its marker.
func everything(n *nodeview.Node) map[string]string { return withMarker(n.Labels, n.Marker) }

// withMarker returns a copy of labels with a marker, unless it is empty.
func withMarker(own map[string]string, marker string) map[string]string {
	all := make(map[string]string, len(own)+1)
	maps.Copy(all, own)
	if marker != "" {
		all[labels.Marker] = marker
	}
	return all
}

// setEverything sets the labels of a Node and its marker.
func setEverything(n *nodeview.Node, all map[string]string) {
	n.Labels, n.Marker = labels.Split(all)
	n.Gated = n.Marker == labels.Pending
}

// act changes the value that the agents of the machine set; "" removes it.
func (w *world) act(value string) {
	n := *w.node
	n.Labels = maps.Clone(n.Labels)
	w.acts()
	machine := labels.Keys("")
	if delete(n.Labels, w.agentKey); value != "" {
		n.Labels[w.agentKey], machine = value, labels.Keys(w.agentKey)
		w.ghost.agentsSet(w, value)
	}
	if !w.node.Machine.Has(w.agentKey) && !w.node.Unclear.Has(w.agentKey) {
		w.ghost.takesOver(w, &n)
	}
	n.Machine, n.Unclear, n.ActedAt = machine, "", w.acted
	n.Admitted = n.Admitted.Where(func(key string) bool { return key != w.agentKey })
	w.setEdited(&n, n.Edited.Without(labels.Keys(w.agentKey)))
	w.show(&n, false)
}

// acts notes that the agents of the machine write now.
func (w *world) acts() { w.acted = time.Unix(int64(w.rv)+1, 0) }

// hasCopy reports whether the live Node has the key of the agents from a copy.
func (w *world) hasCopy() bool {
	_, isThere := w.node.Labels[w.agentKey]
	return isThere && w.ghost.hasCopies && machineOf(w.node) == ""
}

// follows reports whether the record belongs to an incarnation.
func (w *world) follows(uid types.UID) bool {
	return w.record.hasLabels() && (w.record.Source == uid || w.record.Restored.UID == uid)
}

// lastStored returns the newest state of an incarnation in the queue or in the record. It returns
// the zero value if the end may overtake the queue. A restore by a processor counts as stored
// before it is noted, since its note supersedes earlier transactions in the queue. An admission by
// the webhook is not persistent: the initial contents of a Node are known once a watcher has stored
// them.
func (w *world) lastStored(uid types.UID) labels.Side {
	var saved labels.Side
	seen := 0
	if w.follows(uid) {
		saved, seen = preserve.Saved(w.record.Record), lastSeen(w.record.Record)
	}
	if l := w.ghost.by[incarnationOf(uid)]; l.asked == nil && l.restored > seen {
		saved, seen = w.sideAt(l.restored), l.restored
	}
	for _, t := range slices.Backward(w.queue) {
		switch isNewer := t.UID == uid && number(t.Revision.String()) > seen; {
		case isNewer && w.ghost.protects:
			return labels.Side{}
		case isNewer:
			return labels.Side{Labels: t.Labels, Machine: t.Machine, Unclear: t.Unclear}
		}
	}
	return saved
}

// sideAt returns the contents of the Node at a resourceVersion.
func (w *world) sideAt(rv int) labels.Side {
	at := slices.IndexFunc(w.events, func(e event) bool { return e.rv == rv })
	n := w.events[at].node
	own, _ := split(n.Labels)
	return labels.Side{Labels: own, Machine: n.Machine, Unclear: n.Unclear}
}

// actElsewhere lets agents set something other than a label on the Node.
func (w *world) actElsewhere() {
	n := *w.node
	w.acts()
	n.ActedAt = w.acted
	w.show(&n, false)
}

func (w *world) createNode(own map[string]string, finalizers []string) {
	w.addNode(w.request(own, finalizers, theAgents))
}

// setter is who sets the key of the agents when a Node is created.
type setter int

const (
	theAgents setter = iota
	aCopy            // a person, with the value of the former Node
	aPolicy          // an admission plugin, which leaves no trace
)

// request returns the Node of a create request.
func (w *world) request(own map[string]string, finalizers []string, s setter) *creation {
	n := &nodeview.Node{Name: nodeName, Finalizers: finalizers}
	setEverything(n, own)
	switch _, isSaid := own[w.agentKey]; {
	case !isSaid, s == aCopy:
	case s == aPolicy:
		n.Unclear, n.ActedAt = labels.Keys(w.agentKey), w.acted
	default: // the kubelet registers with it
		w.acts()
		n.Machine, n.ActedAt = labels.Keys(w.agentKey), w.acted
	}
	if w.ghost.guarded {
		noteGuarded(n, w.acted)
	}
	_, isPersons := own[w.personKey]
	return &creation{node: n, requested: n, setter: s, applied: applied{owned: ownership{person: isPersons}}}
}

// addNode creates a Node after its admission.
func (w *world) addNode(c *creation) {
	w.incarnation++
	c.node.UID = types.UID("u" + strconv.Itoa(w.incarnation))
	w.gated, w.closed = c.gated, 0
	w.applier.applied = c.applied
	w.show(c.node, false)
	w.ghost.created(w)
	w.ghost.createsGuarded(w, c.requested.Labels)
	if value, isSaid := c.requested.Labels[w.agentKey]; isSaid && c.setter == theAgents {
		w.ghost.agentsSet(w, value)
	}
	w.ghost.admitted(w, c)
}

// deleteNode deletes the Node, or marks it as deleted if it has the finalizer.
func (w *world) deleteNode() {
	n := *w.node
	if len(n.Finalizers) == 0 {
		w.show(&n, true)
		return
	}
	if !n.IsDeleting() {
		n.DeletedAt = time.Unix(1, 0)
		w.show(&n, false)
	}
}

// isNode reports whether the Node is unchanged since it was read, the precondition of every write
// to it.
func (w *world) isNode(uid types.UID, rv revision.Revision) bool {
	return w.node != nil && w.node.UID == uid && w.node.Revision == rv
}

// takes reports whether the API server accepts one of the two patches of [nodes.Nodes.Relabel].
func (w *world) takes(read *nodeview.Node, wanted map[string]string) bool {
	if w.node == nil || w.isNode(read.UID, read.Revision) {
		return w.node != nil
	}
	changes := labels.ChangesBetween(everything(read), wanted)
	_, marks := changes.Labels[labels.Marker]
	isReplaced := func(key string) bool {
		annotation, isAnnotation := labels.AsAnnotation(key)
		_, changesLabel := changes.Labels[key]
		_, changesAnnotation := changes.Annotations[annotation]
		return changesLabel || isAnnotation && changesAnnotation || labels.IsTaint(key) && (changes.Taints || read.HasStartupTaint()) ||
			key == labels.Marker && !marks
	}
	return w.node.UID == read.UID && !w.hadMarker(read) && read.Identity == w.reported() &&
		(!changes.Taints && !read.Gated || w.gated == read.HasStartupTaint()) &&
		maps.Equal(only(everything(read), isReplaced), only(everything(w.node), isReplaced))
}

// hadMarker reports whether the Node had another marker since it was read, which has been removed.
// The conditions of a patch cannot show that, which docs/design.md accepts.
func (w *world) hadMarker(read *nodeview.Node) bool {
	since := number(read.Revision.String())
	return slices.ContainsFunc(w.events, func(e event) bool {
		return e.rv > since && e.node.UID == read.UID && e.node.Marker != read.Marker
	})
}

// only returns the labels whose keys match.
func only(all map[string]string, matches func(key string) bool) map[string]string {
	some := map[string]string{}
	for key, value := range all {
		if matches(key) {
			some[key] = value
		}
	}
	return some
}

// patch makes the changes of a write that the Node takes, see takes.
func (w *world) patch(read *nodeview.Node, wanted map[string]string) {
	w.gated = w.gated && !read.HasStartupTaint()
	w.applier.write(w, ownership{keeper: true}, func(own map[string]string) { merge(own, everything(read), wanted) })
	// What a processor sets is not edited by users. A restore always sets the marker.
	set := labels.KeysOf(maps.Keys(wanted))
	set = set.Without(set.Same(everything(read), wanted))
	edited := w.node.Edited.Without(set)
	if _, restores := wanted[labels.Marker]; restores {
		edited = edited.Union(labels.Marker)
	}
	w.node.Edited = edited
}

// restore sets the labels and the marker of the Node. It returns false if the Node does not take
// that. If the record was removed after the decision, the restore counts as done just before the
// removal.
func (w *world) restore(read *nodeview.Node, wanted map[string]string, since int, isOvertaken bool) bool {
	if !w.takes(read, wanted) {
		return false
	}
	if !isOvertaken {
		w.ghost.restores(w, read, wanted)
		w.ghost.opens(w, read, wanted, since)
	}
	w.patch(read, wanted)
	if !isOvertaken {
		w.ghost.restored(w)
	}
	return true
}

// setFinalizer adds or removes the finalizer of the Node. It cannot be added to a Node that is
// being deleted; removing it deletes such a Node.
func (w *world) setFinalizer(isOn bool) bool {
	if isOn == isProtected(w.node) || isOn && w.node.IsDeleting() {
		return false
	}
	n := *w.node
	n.Finalizers = nil
	if isOn {
		n.Finalizers = []string{finalizer}
	}
	w.show(&n, !isOn && n.IsDeleting())
	return true
}

// editLate edits the Node just before it is deleted.
func (w *world) editLate() {
	w.relabel(func(own map[string]string) { own[w.personKey] = "late" + strconv.Itoa(w.rv) })
	w.lateEdit = len(w.events) + 1
}

func isProtected(n *nodeview.Node) bool { return n != nil && len(n.Finalizers) > 0 }

// waitsForFinalizer reports whether the removal of the finalizer deletes a Node.
func waitsForFinalizer(n *nodeview.Node) bool {
	return isProtected(n) && n.IsDeleting()
}

// isNoted reports whether the record notes that the live incarnation owns its labels.
func (w *world) isNoted() bool {
	return w.record != nil && (w.record.Source == w.node.UID || w.record.Restored.UID == w.node.UID)
}

// liveNode returns the Node as a processor reads it.
func (w *world) liveNode() *nodeview.Node {
	if w.node == nil {
		return nil
	}
	return w.whole(w.node)
}

// writeRecord writes a record, conditional on the record that was read, or on its absence if that
// is nil.
func (w *world) writeRecord(read *corev1.ConfigMap, r record.Record) bool {
	if current := w.record.stored().Object; read != current {
		return false
	}
	w.ghost.saves(w, r)
	if w.ghost.guarded {
		w.checkReadable(r)
	}
	w.nextRV()
	w.setRecord(newStoredRecord(r))
	return true
}

// find returns the position of a transaction in the queue, or where to insert it.
func (w *world) find(t txn.Transaction) (int, bool) {
	return slices.BinarySearchFunc(w.queue, t, func(stored *storedTxn, t txn.Transaction) int { return txn.Compare(stored.Transaction, t) })
}

// put creates a transaction. If the name is taken, it returns the existing transaction, or an empty
// one for a malformed object.
func (w *world) put(t txn.Transaction) (other *storedTxn) {
	at, isTaken := w.find(t)
	if isTaken {
		return w.queue[at]
	}
	if w.isMalformed(t.Revision) {
		return &storedTxn{}
	}
	w.ghost.putsEdits(w, t)
	w.ghost.puts(t)
	w.ghost.recordsRemoval(w, t)
	w.nextRV()
	w.puts++
	w.queue = slices.Insert(slices.Clone(w.queue), at, &storedTxn{Transaction: t, uid: w.rv})
	return nil
}

// remove deletes a transaction, conditional on its UID.
func (w *world) remove(t *storedTxn) {
	if at, ok := w.find(t.Transaction); ok && w.queue[at].uid == t.uid {
		w.queue = slices.Delete(slices.Clone(w.queue), at, at+1)
		w.nextRV()
	}
}
