package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

const (
	nodeName  = "n"
	liveKey   = "live"
	finalizer = "nodekeeper.dev/save-labels"

	// What agents set, and people, too: a label, an annotation or a taint.
	agentLabel      = "agent"
	agentAnnotation = "annotation:agent"
	agentTaint      = "taint:agent:NoSchedule"

	agentKeys labels.Keys = agentLabel + "," + agentAnnotation + "," + agentTaint // whichever there is
)

// policy is that of the processors.
var policy = func() labels.Policy {
	live, err := labels.ParsePatterns(liveKey)
	if err != nil {
		panic(err)
	}
	return labels.Policy{Mode: labels.Replace, Live: live, Preserves: func(string) bool { return true }}
}()

// event is one event of a watch on Nodes. What it points to is never changed.
type event struct {
	node        *metav1.PartialObjectMetadata
	incarnation int
	rv          int
	isDelete    bool
}

// storedRecord is the record as the API server has it. What it points to is never changed.
type storedRecord struct {
	record.Record
	object *corev1.ConfigMap // which stands for its resourceVersion
}

func newStoredRecord(r record.Record) *storedRecord {
	return &storedRecord{Record: r, object: &corev1.ConfigMap{}}
}

// hasLabels says whether there is a record, and not only a floor.
func (s *storedRecord) hasLabels() bool { return s != nil && !s.Floor }

// get returns the record, nil if there is none.
func (s *storedRecord) get() *record.Record {
	if s == nil {
		return nil
	}
	return &s.Record
}

// stored returns the record as the door to the records does.
func (s *storedRecord) stored() records.Stored {
	if s == nil {
		return records.Stored{}
	}
	return records.Stored{Record: &s.Record, Object: s.object}
}

// storedTxn is a transaction as the API server has it. What it points to is never changed.
type storedTxn struct {
	txn.Transaction
	uid int
}

// world is the API server: one Node, its record and its transactions.
type world struct {
	rv          int
	incarnation int // of the live Node, or of the last one
	node        *metav1.PartialObjectMetadata
	events      []event
	acted       string // when the agents of the machine last set anything
	agentKey    string // what they set
	personKey   string // what people set, and nobody else
	gated       bool   // whether the live Node has the startup taint
	closed      int    // when somebody has closed its gate after it was created, 0: nobody has
	record      *storedRecord
	records     []*storedRecord // all that there ever was, the present one last: what caches may have
	queue       []*storedTxn    // in order; a new slice with every change, so that caches can have the old one
	puts        int
	removals    int               // of the record
	machine     machine           // which the live Node is, or the last one was
	hasSaid     bool              // whether it says which machine it is
	members     []*member         // in the order in which they joined
	late        []txn.Transaction // whose senders have crashed
	lateEdit    int               // how many events there were at the last end of a Node that was edited while it was let go

	leavesNoFloor bool // a mutant's

	ghost  ghost
	broken error    // the first promise that was broken
	trace  []string // what happened, if wanted
	tracks bool
}

func (w *world) reset(s *settings, tracks bool) {
	*w = world{events: w.events[:0], records: append(w.records[:0], nil), tracks: tracks, ghost: w.ghost, agentKey: s.agentKey, personKey: s.personKey}
	w.ghost.reset(s)
}

func (w *world) tell(format string, args ...any) {
	if w.tracks {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

func (w *world) breaks(err error, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("%w: "+format, append([]any{err}, args...)...)
		w.tell("!!! %v", w.broken)
	}
}

func (w *world) nextRV() string {
	w.rv++
	return rvText(w.rv)
}

// rvText returns the text of a resourceVersion.
func rvText(rv int) string { return rvTexts[min(rv, len(rvTexts)-1)] }

// rvTexts are those of a run, which ends long before.
var rvTexts = func() (texts [20_000]string) {
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}()

// show makes a state of the Node the present one and tells the watches.
func (w *world) show(n *metav1.PartialObjectMetadata, isDelete bool) {
	n.ResourceVersion = w.nextRV()
	w.node = n
	w.events = append(w.events, event{node: n, incarnation: w.incarnation, rv: w.rv, isDelete: isDelete})
	if isDelete {
		w.node = nil
	}
}

// relabel changes the labels of the Node, as people or a processor; nil: nothing but its resourceVersion.
func (w *world) relabel(change func(own map[string]string)) {
	n := *w.node
	if change != nil {
		n.Labels = maps.Clone(n.Labels)
		change(n.Labels)
	}
	value, isThere := n.Labels[w.agentKey]
	switch {
	case w.agentKey == agentTaint: // somebody has written the list of taints, and be it that nothing changed of this one
		n.Annotations = maps.Clone(n.Annotations)
		agents.Note(&n, "", labels.Keys(agentTaint).Where(func(string) bool { return isThere }), w.acted)
	case !isThere || value != w.node.Labels[w.agentKey]:
		n.Annotations = maps.Clone(n.Annotations)
		agents.Note(&n, "", "", w.acted)
	}
	w.setAdmitted(&n)
	w.show(&n, false)
}

// act changes what the agents of the machine say of it: another value, or "" to take it back.
func (w *world) act(value string) {
	n := *w.node
	n.Labels, n.Annotations = maps.Clone(n.Labels), nil
	w.acted = fmt.Sprintf("%09d", w.rv)
	machine := labels.Keys("")
	if delete(n.Labels, w.agentKey); value != "" {
		n.Labels[w.agentKey], machine = value, labels.Keys(w.agentKey)
		w.ghost.agentsSay(w, value)
	}
	agents.Note(&n, machine, "", w.acted)
	agents.NoteAdmitted(&n, agents.Admitted(w.node).Where(func(key string) bool { return key != w.agentKey }))
	w.show(&n, false)
}

// follows says whether the record is of an incarnation.
func (w *world) follows(uid types.UID) bool {
	return w.record.hasLabels() && (w.record.Source == uid || w.record.Restored.UID == uid)
}

// lastStored is the newest state of an incarnation in the queue or in the record. It is none if the
// end may overtake the queue. A processor's restore that is not noted yet counts as stored: its
// note makes void what is in the queue of before. The webhook sees nothing that lasts: what a Node
// was created with is known when a watcher has stored it.
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

// sideAt is what the Node said when it had this resourceVersion.
func (w *world) sideAt(rv int) labels.Side {
	at := slices.IndexFunc(w.events, func(e event) bool { return e.rv == rv })
	n := w.events[at].node
	own, _ := split(n.Labels)
	return labels.Side{Labels: own, Machine: agents.Machine(n), Unclear: agents.Unclear(n)}
}

// actElsewhere is something that agents set on the Node which is no label.
func (w *world) actElsewhere() {
	n := *w.node
	n.Annotations = nil
	w.acted = fmt.Sprintf("%09d", w.rv)
	agents.Note(&n, agents.Machine(w.node), agents.Unclear(w.node), w.acted)
	agents.NoteAdmitted(&n, agents.Admitted(w.node))
	w.show(&n, false)
}

func (w *world) createNode(own map[string]string, finalizers []string) {
	w.addNode(w.request(own, finalizers))
}

// request returns a Node that is about to be created.
func (w *world) request(own map[string]string, finalizers []string) *creation {
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: own, Finalizers: finalizers}}
	if _, isSaid := own[w.agentKey]; isSaid { // the kubelet registers with it
		w.acted = fmt.Sprintf("%09d", w.rv)
		agents.Note(n, labels.Keys(w.agentKey), "", w.acted)
	}
	return &creation{node: n, requested: n}
}

// addNode creates a Node as it was admitted.
func (w *world) addNode(c *creation) {
	w.incarnation++
	c.node.UID = types.UID("u" + strconv.Itoa(w.incarnation))
	w.gated, w.closed = c.gated, 0
	w.show(c.node, false)
	w.ghost.created(w)
	if value, isSaid := c.requested.Labels[w.agentKey]; isSaid {
		w.ghost.agentsSay(w, value)
	}
	w.ghost.admitted(w, c)
}

// deleteNode deletes the Node, or marks it if it has the finalizer.
func (w *world) deleteNode() {
	n := *w.node
	if len(n.Finalizers) == 0 {
		w.show(&n, true)
		return
	}
	if n.DeletionTimestamp == nil {
		n.DeletionTimestamp = &metav1.Time{}
		w.show(&n, false)
	}
}

// isNode says whether the Node is the one that was read: what every write to it is conditional on.
func (w *world) isNode(uid types.UID, rv string) bool {
	return w.node != nil && w.node.UID == uid && w.node.ResourceVersion == rv
}

// restore gives the Node labels and a marker. It returns false if the Node is not the one that was read. Where a removal of
// the record has overtaken it, it is as if it had been done just before that.
func (w *world) restore(read *metav1.PartialObjectMetadata, wanted map[string]string, since int, isOvertaken bool) bool {
	if !w.isNode(read.UID, read.ResourceVersion) {
		return false
	}
	if !isOvertaken {
		w.ghost.restores(w, read, wanted)
		w.ghost.opens(w, read, wanted, since)
	}
	w.gated = w.gated && !nodeview.HasStartupTaint(read)
	w.relabel(func(own map[string]string) {
		clear(own)
		maps.Copy(own, wanted)
	})
	if !isOvertaken {
		w.ghost.restored(w)
	}
	return true
}

// setFinalizer gives the Node the finalizer or takes it away. A Node that is being deleted cannot get one, and goes with it.
func (w *world) setFinalizer(isOn bool) bool {
	if isOn == isProtected(w.node) || isOn && w.node.DeletionTimestamp != nil {
		return false
	}
	n := *w.node
	n.Finalizers = nil
	if isOn {
		n.Finalizers = []string{finalizer}
	}
	w.show(&n, !isOn && n.DeletionTimestamp != nil)
	return true
}

// editLate is an edit of the Node that is about to be gone.
func (w *world) editLate() {
	w.relabel(func(own map[string]string) { own[w.personKey] = "late" + strconv.Itoa(w.rv) })
	w.lateEdit = len(w.events) + 1
}

func isProtected(n *metav1.PartialObjectMetadata) bool { return n != nil && len(n.Finalizers) > 0 }

// waitsForFinalizer says whether a Node goes when it loses the finalizer.
func waitsForFinalizer(n *metav1.PartialObjectMetadata) bool {
	return isProtected(n) && n.DeletionTimestamp != nil
}

// isNoted says whether the record says of the live incarnation that it has its labels.
func (w *world) isNoted() bool {
	return w.record != nil && (w.record.Source == w.node.UID || w.record.Restored.UID == w.node.UID)
}

// liveNode is what a processor reads of the Node.
func (w *world) liveNode() *preserve.Node {
	if w.node == nil {
		return nil
	}
	return preserve.NodeOf(w.whole(w.node))
}

// writeRecord is conditional on the record that was read, nil for none.
func (w *world) writeRecord(read *corev1.ConfigMap, r record.Record) bool {
	if current := w.record.stored().Object; read != current {
		return false
	}
	w.ghost.saves(w, r)
	w.nextRV()
	w.setRecord(newStoredRecord(r))
	return true
}

// find returns where in the queue the transaction with a resourceVersion is, or would be.
func (w *world) find(t txn.Transaction) (int, bool) {
	return slices.BinarySearchFunc(w.queue, t, func(stored *storedTxn, t txn.Transaction) int { return txn.Compare(stored.Transaction, t) })
}

// put creates a transaction. If the name is taken, it returns the one that has it.
func (w *world) put(t txn.Transaction) (other *storedTxn) {
	at, isTaken := w.find(t)
	if isTaken {
		return w.queue[at]
	}
	w.ghost.puts(t)
	w.ghost.hearsOfRemoval(w, t)
	w.nextRV()
	w.puts++
	w.queue = slices.Insert(slices.Clone(w.queue), at, &storedTxn{Transaction: t, uid: w.rv})
	return nil
}

// remove deletes a transaction, conditional on its uid.
func (w *world) remove(t *storedTxn) {
	if at, ok := w.find(t.Transaction); ok && w.queue[at].uid == t.uid {
		w.queue = slices.Delete(slices.Clone(w.queue), at, at+1)
		w.nextRV()
	}
}
