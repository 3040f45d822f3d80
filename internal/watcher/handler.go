package watcher

import (
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher/barrier"
	"nodekeeper.dev/internal/watcher/liveness"
)

// handlerItem is the handler's work item in the loop. It is not a valid node name.
const handlerItem = "an event of the informer"

// handler receives the events of the informer, which calls it from one goroutine, and adds their
// transactions to the outbox.
type handler struct {
	log         logr.Logger
	observer    Observer
	edits       preserve.Edits // belongs to the goroutine of the informer
	stream      *barrier.Stream
	outbox      *Outbox
	history     *rewind.Detector
	events      events.EventRecorder
	loop        *liveness.Loop
	added       func(node string) // called with nodes that have events in the outbox
	onUnchecked func()            // called when there are unchecked nodes
	// passed reports whether the barrier of a list has passed for conclusions about a node.
	passed func(node string, list int) bool

	mu sync.Mutex
	// initial are the nodes of the first list, until they are compared with their records.
	initial map[string]listedNode
	// unchecked are nodes that may have changed in a gap, until they are compared with their
	// records.
	unchecked map[string]listedNode
}

// listedNode is a node as returned by a list.
type listedNode struct {
	list int
	node *nodeview.Node
	at   time.Time // when it was observed
}

var _ toolscache.ResourceEventHandler = (*handler)(nil)

// OnAdd handles a new node, or one of the first list.
func (h *handler) OnAdd(obj any, inInitialList bool) {
	defer h.loop.Begin(handlerItem)()
	n := h.node(obj)
	if n == nil {
		return
	}
	h.stream.Replace(n.Name, "", n.UID)
	if inInitialList {
		h.keep(n)
		return
	}
	h.handle(nil, n, false)
}

// OnUpdate handles a changed node. After a restore of etcd that raises all resourceVersions
// (etcdutl snapshot restore --bump-revision), these are the nodes that are older than before.
func (h *handler) OnUpdate(oldObj, newObj any) {
	defer h.loop.Begin(handlerItem)()
	before, after := h.node(oldObj), h.node(newObj)
	if before == nil || after == nil {
		return
	}
	_ = h.history.Compare(before.Revision.String(), after.Revision.String()) // it notifies its subscribers
	h.stream.Replace(after.Name, before.UID, after.UID)
	h.handle(before, after, false)
}

// OnDelete handles a deleted node. A tombstone stands for a delete that the watch missed, and holds
// the last state that was seen.
func (h *handler) OnDelete(obj any) {
	defer h.loop.Begin(handlerItem)()
	tombstone, missed := obj.(toolscache.DeletedFinalStateUnknown)
	if missed {
		obj = tombstone.Obj
	}
	n := h.node(obj)
	if n == nil {
		return
	}
	h.stream.Replace(n.Name, n.UID, "")
	h.handle(n, nil, missed)
}

// node returns a Node that an informer delivered.
func (h *handler) node(obj any) *nodeview.Node {
	n, ok := obj.(*nodeview.Node)
	if !ok {
		h.log.Info("Ignored an event of an object that is not a Node", "object", obj)
	}
	return n
}

// keep keeps a node of the first list until it is compared with its record.
func (h *handler) keep(n *nodeview.Node) {
	if n.Name == record.RootCAName {
		h.reportNotKept(n)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.initial == nil {
		h.initial = map[string]listedNode{}
	}
	// Delays count from the list, so they include the wait for the barrier.
	h.initial[n.Name] = listedNode{node: n, at: time.Now()}
}

// initialNodes returns the nodes of the first list to compare with their records: those that no
// other watcher holds back.
func (h *handler) initialNodes() map[string]listedNode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.freeLocked(h.initial)
}

// freeLocked returns the listed nodes whose barrier has passed for conclusions about them.
func (h *handler) freeLocked(listed map[string]listedNode) map[string]listedNode {
	free := make(map[string]listedNode, len(listed))
	for name, d := range listed {
		if h.passed(name, d.list) {
			free[name] = d
		}
	}
	return free
}

// compared reports whether a node of the first list has been compared with its record. It is true
// for any other node.
func (h *handler) compared(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, waits := h.initial[node]
	return !waits
}

// handle adds the transactions of an event to the outbox, with the list on which they build, and
// then marks the event as handled in the stream.
func (h *handler) handle(before, after *nodeview.Node, missed bool) {
	last := after
	if last == nil {
		last = before
	}
	at, now := last.Revision, time.Now()
	list, observed := h.stream.Origin(at)
	if missed {
		list, observed = max(0, h.stream.Latest()), false
	}
	if last.Name == record.RootCAName {
		if before == nil {
			h.reportNotKept(after)
		}
	} else if transactions := h.observe(before, after, now, observed); len(transactions) > 0 {
		h.put(transactions, list, observed)
		h.added(last.Name)
	} else if !observed && h.observer.NeedsCheck(before, after) {
		h.addUnchecked(listedNode{list, after, now})
		h.onUnchecked()
	}
	if !missed {
		h.stream.Handled(last.Name, at)
	}
}

// observe returns the transactions of an event, which was either observed or concluded from a list.
func (h *handler) observe(before, after *nodeview.Node, now time.Time, observed bool) []txn.Transaction {
	if observed {
		transactions := h.observer.Observe(before, after, now)
		h.edits.Observe(before, after, transactions)
		return transactions
	}
	transactions := h.observer.ObserveAfterGap(before, after, now)
	h.edits.ObserveAfterGap(before, transactions)
	return transactions
}

// addUnchecked keeps a node until it is compared with its record.
func (h *handler) addUnchecked(d listedNode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unchecked == nil {
		h.unchecked = map[string]listedNode{}
	}
	h.unchecked[d.node.Name] = d
}

// put adds the transactions of an event to the outbox, and removes their node from unchecked. It
// holds the lock throughout, because a resolve in between would add the earlier state after the
// later one.
func (h *handler) put(transactions []txn.Transaction, list int, observed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range transactions {
		h.outbox.Add(Event{Transaction: t, List: list, Observed: observed})
		delete(h.unchecked, t.Node)
	}
}

// uncheckedNodes returns the nodes to compare with their records after a gap, from lists whose
// barrier has passed for them.
func (h *handler) uncheckedNodes() map[string]listedNode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.freeLocked(h.unchecked)
}

// resolve adds the result of comparing a node with its record to the outbox, unless a later event
// of the node has arrived.
func (h *handler) resolve(d listedNode, transactions []txn.Transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := d.node.Name
	if h.unchecked[name].node != d.node {
		return
	}
	delete(h.unchecked, name)
	for _, t := range transactions {
		h.outbox.Add(Event{Transaction: t, List: d.list})
		h.added(name)
	}
}

// resolveInitial adds the conclusions about a node of the first list before the events that were
// observed since, which may then be stored.
func (h *handler) resolveInitial(name string, transactions []txn.Transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range slices.Backward(transactions) {
		h.outbox.AddFirst(Event{Transaction: t})
	}
	if delete(h.initial, name); h.outbox.Len(name) > 0 {
		h.added(name)
	}
}

// reportNotKept reports a node that has the one name that no record can have.
func (h *handler) reportNotKept(n *nodeview.Node) {
	h.log.Info("Ignored a node whose name Kubernetes reserves for a ConfigMap", "node", n.Name)
	h.events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.LabelsNotKept, "Record",
		"Cannot save the labels of this node: Kubernetes reserves its name for a ConfigMap in every namespace. Rename the node.")
}
