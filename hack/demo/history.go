package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// kind is what an event is about.
type kind string

const (
	nodes        kind = "node"
	transactions kind = "transaction"
	records      kind = "record"
	locks        kind = "lock"
)

// event is one event of a watch. The zero value is none.
type event struct {
	at   time.Time // when it arrived here
	kind kind
	typ  watch.EventType
	obj  client.Object
}

func (e event) happened() bool { return e.obj != nil }

func (e event) is(k kind, name string) bool { return e.kind == k && e.obj.GetName() == name }

// labels returns the labels of a node without the marker.
func (e event) labels() map[string]string {
	own, _ := labels.Split(e.obj.GetLabels())
	return own
}

// isRestore reports whether a node got its labels back since the event before.
func (e event) isRestore(before event) bool {
	marker := e.obj.GetLabels()[labels.Marker]
	return marker != "" && marker != before.obj.GetLabels()[labels.Marker]
}

// data returns the data of a transaction or a record.
func (e event) data() map[string]string {
	if cm, ok := e.obj.(*corev1.ConfigMap); ok {
		return cm.Data
	}
	return nil
}

// holder returns who holds a lock.
func (e event) holder() string {
	if lease, ok := e.obj.(*coordinationv1.Lease); ok && lease.Spec.HolderIdentity != nil {
		return *lease.Spec.HolderIdentity
	}
	return ""
}

// history is what was seen, oldest first. Every watch delivers its events in order; between two
// watches the order is that of arrival.
type history []event

// present returns the latest event of each object of a kind that is there, by name.
func (h history) present(k kind) map[string]event {
	present := map[string]event{}
	for _, e := range h {
		switch {
		case e.kind != k:
		case e.typ == watch.Deleted:
			delete(present, e.obj.GetName())
		default:
			present[e.obj.GetName()] = e
		}
	}
	return present
}

// life is one incarnation of a node as far as it was seen.
type life struct {
	added event
	// restored is the first event that shows the marker.
	restored event
	deleted  event
}

// latency is the time from the node's return to its labels.
func (l life) latency() time.Duration { return l.restored.at.Sub(l.added.at) }

// lives returns every incarnation of every node.
func (h history) lives() map[types.UID]life {
	lives := map[types.UID]life{}
	for _, e := range h {
		if e.kind != nodes {
			continue
		}
		l := lives[e.obj.GetUID()]
		_, marker := labels.Split(e.obj.GetLabels())
		switch {
		case e.typ == watch.Added:
			l.added = e
		case e.typ == watch.Deleted:
			l.deleted = e
		case marker != "" && !l.restored.happened():
			l.restored = e
		}
		lives[e.obj.GetUID()] = l
	}
	return lives
}

// restoredAs returns an error if the node of that name was not seen to get exactly the wanted labels back in this life.
func (l life) restoredAs(name string, want map[string]string) error {
	if !l.restored.happened() {
		return fmt.Errorf("node %s was not seen with the label %s", name, labels.Marker)
	}
	if got := l.restored.labels(); !maps.Equal(got, want) {
		return fmt.Errorf("node %s got the labels %v back, not %v", name, got, want)
	}
	return nil
}

// node returns the latest event of a node.
func (h history) node(name string) event {
	for _, e := range slices.Backward(h) {
		if e.is(nodes, name) {
			return e
		}
	}
	return event{}
}

// applied returns the events that stored and removed the transaction of a node's event, or an error
// if one was not seen.
func (h history) applied(e event) (came, went event, err error) {
	name := txn.Transaction{Node: e.obj.GetName(), Revision: revision.Of(e.obj.GetResourceVersion())}.Name()
	for _, t := range h {
		switch {
		case !t.is(transactions, name):
		case t.typ == watch.Added && !came.happened():
			came = t
		case t.typ == watch.Deleted:
			return came, t, nil
		}
	}
	if !came.happened() {
		return came, went, fmt.Errorf("no transaction was seen of %s node %s", e.typ, e.obj.GetName())
	}
	return came, went, fmt.Errorf("transaction %s of node %s is in the queue", name, e.obj.GetName())
}

// recorded returns the events of a node that need a transaction: every create, change of labels and
// delete. A restore needs none, as the processor notes it in the record itself, but may have one.
func (h history) recorded(node string) history {
	var owed history
	var before event
	for _, e := range h {
		if !e.is(nodes, node) {
			continue
		}
		if e.typ != watch.Modified || !e.isRestore(before) && !maps.Equal(before.labels(), e.labels()) {
			owed = append(owed, e)
		}
		before = e
	}
	return owed
}

// settled returns nil if a transaction of every event of the node came and went, or that of a later
// one of the same incarnation, and none is there now: an event that comes before a watcher has
// written the one before it takes its place.
func (h history) settled(node string) error {
	owed := h.recorded(node)
	for i, e := range owed {
		came, _, err := h.applied(e)
		isSuperseded := !came.happened() && slices.ContainsFunc(owed[i+1:], func(later event) bool {
			_, _, err := h.applied(later)
			return later.obj.GetUID() == e.obj.GetUID() && err == nil
		})
		if err != nil && !isSuperseded {
			return err
		}
	}
	for name := range h.present(transactions) {
		if hash, _, _ := txn.SplitName(name); hash == txn.NodeHash(node) {
			return fmt.Errorf("transaction %s of node %s is in the queue again", name, node)
		}
	}
	return nil
}

// inOrder returns events as they arrived, without those that did not happen.
func inOrder(events ...event) history {
	events = slices.DeleteFunc(events, func(e event) bool { return !e.happened() })
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	return events
}
