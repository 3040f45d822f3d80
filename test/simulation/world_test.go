package simulation

import (
	"fmt"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

const (
	nodeName = "n"
	liveKey  = "live"
)

// policy is that of the processors.
var policy = func() labels.Policy {
	live, err := labels.ParsePatterns(liveKey)
	if err != nil {
		panic(err)
	}
	return labels.Policy{Mode: labels.Replace, Live: live}
}()

// event is one event of a watch on Nodes.
type event struct {
	node    *metav1.PartialObjectMetadata
	deleted bool
}

// storedRecord is the record as the API server has it.
type storedRecord struct {
	record record.Record
	rv     int
}

// storedTxn is a transaction as the API server has it.
type storedTxn struct {
	txn.Transaction
	uid int
}

// world is the API server, and the ghost that knows what the labels ought to be.
type world struct {
	rv, uids int
	node     *metav1.PartialObjectMetadata
	events   []event
	record   *storedRecord
	queue    map[string]storedTxn

	ghost  ghost
	broken error    // the first promise that was broken
	trace  []string // what happened, if wanted
	tracks bool
}

// ghost is what the labels ought to be.
type ghost struct {
	saved map[string]string // what the next incarnation is to get; nil: nothing was ever saved
	owned bool              // whether the live incarnation has its labels
}

func newWorld(tracks bool) *world {
	return &world{queue: map[string]storedTxn{}, tracks: tracks}
}

func (w *world) tell(format string, args ...any) {
	if w.tracks {
		w.trace = append(w.trace, fmt.Sprintf(format, args...))
	}
}

func (w *world) breaks(err error, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("%w: "+format, append([]any{err}, args...)...)
	}
}

func (w *world) nextRV() string {
	w.rv++
	return strconv.Itoa(w.rv)
}

// write stores a new state of the Node and tells the watches.
func (w *world) write(change func(n *metav1.PartialObjectMetadata)) {
	n := w.node.DeepCopy()
	change(n)
	n.ResourceVersion = w.nextRV()
	w.node = n
	w.events = append(w.events, event{node: n})
}

func (w *world) createNode(own map[string]string) {
	w.uids++
	w.node = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName, UID: types.UID("u" + strconv.Itoa(w.uids)), ResourceVersion: w.nextRV(), Labels: own,
	}}
	w.events = append(w.events, event{node: w.node})
	w.ghost.owned = w.ghost.saved == nil
}

func (w *world) deleteNode() {
	if own, _ := labels.Split(w.node.Labels); w.ghost.owned {
		w.ghost.saved = own
	}
	n := w.node.DeepCopy()
	n.ResourceVersion = w.nextRV()
	w.node = nil
	w.events = append(w.events, event{node: n, deleted: true})
}

// patchNode is the restore. It returns the new resourceVersion, or false if the Node is not the one that was read.
func (w *world) patchNode(read *preserve.Node, d preserve.Decision) (string, bool) {
	if w.node == nil || string(w.node.UID) != string(read.UID) || w.node.ResourceVersion != read.ResourceVersion {
		return "", false
	}
	want := policy.Restored(read.Labels, w.ghost.saved)
	if w.ghost.owned {
		w.breaks(errBrokeP3, "%s had its labels, %v, and gets %v", w.node.UID, w.node.Labels, d.Labels)
	} else if !maps.Equal(d.Labels, want) {
		w.breaks(errBrokeP1, "%s gets %v and not %v", w.node.UID, d.Labels, want)
	}
	w.write(func(n *metav1.PartialObjectMetadata) {
		n.Labels = maps.Clone(d.Labels)
		n.Labels[labels.Marker] = d.Marker
	})
	w.ghost.owned = true
	return w.node.ResourceVersion, true
}

// isNoted says whether the record says of the live incarnation that it has its labels.
func (w *world) isNoted() bool {
	return w.record != nil && (w.record.record.Source == w.node.UID || w.record.record.Restored.UID == w.node.UID)
}

func (w *world) liveNode() *preserve.Node {
	if w.node == nil {
		return nil
	}
	own, marker := labels.Split(w.node.Labels)
	return &preserve.Node{UID: w.node.UID, ResourceVersion: w.node.ResourceVersion, Labels: own, Marker: marker}
}

// writeRecord is conditional on the record that was read, nil for none.
func (w *world) writeRecord(read *storedRecord, r record.Record) bool {
	if read == nil && w.record != nil || read != nil && (w.record == nil || w.record.rv != read.rv) {
		return false
	}
	w.nextRV()
	w.record = &storedRecord{record: r, rv: w.rv}
	return true
}

// put creates a transaction; false means that the name is taken.
func (w *world) put(t txn.Transaction) bool {
	if _, ok := w.queue[t.ResourceVersion]; ok {
		return false
	}
	w.nextRV()
	w.queue[t.ResourceVersion] = storedTxn{Transaction: t, uid: w.rv}
	return true
}

// remove deletes a transaction by its uid.
func (w *world) remove(t storedTxn) {
	if w.queue[t.ResourceVersion].uid == t.uid {
		delete(w.queue, t.ResourceVersion)
		w.nextRV()
	}
}
