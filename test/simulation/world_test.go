package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

const (
	nodeName  = "n"
	liveKey   = "live"
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
	rv int
}

// get returns the record, nil if there is none.
func (s *storedRecord) get() *record.Record {
	if s == nil {
		return nil
	}
	return &s.Record
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
	record      *storedRecord
	queue       []*storedTxn // in order; a new slice with every change, so that caches can have the old one
	puts        int
	lateEdit    int // how many events there were at the last end of a Node that was edited while it was let go

	ghost  ghost
	broken error    // the first promise that was broken
	trace  []string // what happened, if wanted
	tracks bool
}

func (w *world) reset(s *settings, tracks bool) {
	*w = world{events: w.events[:0], tracks: tracks, ghost: w.ghost}
	w.ghost.reset(s.variant, s.recordUpdates)
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
	return strconv.Itoa(w.rv)
}

// show makes a state of the Node the present one and tells the watches.
func (w *world) show(n *metav1.PartialObjectMetadata, isDelete bool) {
	n.ResourceVersion = w.nextRV()
	w.node = n
	w.events = append(w.events, event{node: n, incarnation: w.incarnation, rv: w.rv, isDelete: isDelete})
	if isDelete {
		w.node = nil
	}
}

// relabel changes the labels of the Node; nil: nothing but its resourceVersion.
func (w *world) relabel(change func(own map[string]string)) {
	n := *w.node
	if change != nil {
		n.Labels = maps.Clone(n.Labels)
		change(n.Labels)
	}
	w.show(&n, false)
}

func (w *world) createNode(own map[string]string, finalizers []string) {
	w.incarnation++
	w.show(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName, UID: types.UID("u" + strconv.Itoa(w.incarnation)), Labels: own, Finalizers: finalizers,
	}}, false)
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

// patchNode is the restore. It returns the new resourceVersion, or false if the Node is not the one that was read.
func (w *world) patchNode(read *preserve.Node, d preserve.Decision) (string, bool) {
	if !w.isNode(read.UID, read.ResourceVersion) {
		return "", false
	}
	w.ghost.restores(w, read, d)
	w.relabel(func(own map[string]string) {
		clear(own)
		maps.Copy(own, d.Labels)
		if d.Marker != "" {
			own[labels.Marker] = d.Marker
		}
	})
	w.ghost.restored(w)
	return w.node.ResourceVersion, true
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
	own, marker := labels.Split(w.node.Labels)
	return &preserve.Node{UID: w.node.UID, ResourceVersion: w.node.ResourceVersion, Labels: own, Marker: marker}
}

// writeRecord is conditional on the record that was read, nil for none.
func (w *world) writeRecord(read *storedRecord, r record.Record) bool {
	if read != w.record {
		return false
	}
	w.ghost.saves(w, r)
	w.nextRV()
	w.record = &storedRecord{Record: r, rv: w.rv}
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
