package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/agents"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

const (
	nodeName  = "n"
	liveKey   = "live"
	agentKey  = "agent" // which agents set, and people, too
	finalizer = "nodekeeper.dev/save-labels"
)

// policy is that of the processors.
var policy = func() labels.Policy {
	live, err := labels.ParsePatterns(liveKey)
	if err != nil {
		panic(err)
	}
	return labels.Policy{Mode: labels.Replace, Live: live}
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
	record      *storedRecord
	queue       []*storedTxn // in order; a new slice with every change, so that caches can have the old one
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
	*w = world{events: w.events[:0], tracks: tracks, ghost: w.ghost}
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
	if value, ok := n.Labels[agentKey]; !ok || value != w.node.Labels[agentKey] {
		n.Annotations = maps.Clone(n.Annotations)
		agents.Note(&n, "", "", w.acted)
	}
	w.show(&n, false)
}

// act changes what the agents of the machine say of it: another value, or "" to take it back.
func (w *world) act(value string) {
	n := *w.node
	n.Labels, n.Annotations = maps.Clone(n.Labels), nil
	w.acted = fmt.Sprintf("%09d", w.rv)
	machine := labels.Keys("")
	if delete(n.Labels, agentKey); value != "" {
		n.Labels[agentKey], machine = value, agentKey
	}
	agents.Note(&n, machine, "", w.acted)
	w.show(&n, false)
}

// follows says whether the record is of an incarnation.
func (w *world) follows(uid types.UID) bool {
	return w.record.hasLabels() && (w.record.Source == uid || w.record.Restored.UID == uid)
}

// lastStored is the newest state of an incarnation in the queue or in the record. It is none if the end may overtake the queue.
func (w *world) lastStored(uid types.UID) labels.Side {
	var saved labels.Side
	seen := 0
	if w.follows(uid) {
		saved, seen = preserve.Saved(w.record.Record), lastSeen(w.record.Record)
	}
	for _, t := range slices.Backward(w.queue) {
		switch isNewer := t.UID == uid && number(t.Revision.String()) > seen; {
		case isNewer && w.ghost.protects:
			return labels.Side{}
		case isNewer:
			return labels.Side{Labels: t.Labels, Machine: t.Machine}
		}
	}
	return saved
}

// actElsewhere is something that agents set on the Node which is no label.
func (w *world) actElsewhere() {
	n := *w.node
	n.Annotations = nil
	w.acted = fmt.Sprintf("%09d", w.rv)
	agents.Note(&n, agents.Machine(w.node), "", w.acted)
	w.show(&n, false)
}

func (w *world) createNode(own map[string]string, finalizers []string) {
	w.incarnation++
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName, UID: types.UID("u" + strconv.Itoa(w.incarnation)), Labels: own, Finalizers: finalizers,
	}}
	if _, ok := own[agentKey]; ok { // the kubelet registers with it
		w.acted = fmt.Sprintf("%09d", w.rv)
		agents.Note(n, agentKey, "", w.acted)
	}
	w.show(n, false)
	w.ghost.created(w)
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
func (w *world) restore(read *metav1.PartialObjectMetadata, wanted map[string]string, isOvertaken bool) bool {
	if !w.isNode(read.UID, read.ResourceVersion) {
		return false
	}
	if !isOvertaken {
		w.ghost.restores(w, read, wanted)
	}
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
	w.relabel(func(own map[string]string) { own["a"] = "late" + strconv.Itoa(w.rv) })
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
	return preserve.NodeOf(w.identified(w.node))
}

// writeRecord is conditional on the record that was read, nil for none.
func (w *world) writeRecord(read *corev1.ConfigMap, r record.Record) bool {
	if current := w.record.stored().Object; read != current {
		return false
	}
	w.ghost.saves(w, r)
	w.nextRV()
	w.record = newStoredRecord(r)
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
