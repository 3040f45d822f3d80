package watcher

import (
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"nodekeeper.dev/internal/watcher/liveness"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/reasons"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/txn"
)

// handling is what the loop calls the work of the handler. No node has such a name.
const handling = "an event of the informer"

// handler takes the events of the informer, which calls it from one goroutine, and puts what they
// mean into the outbox.
type handler struct {
	log      logr.Logger
	observer Observer
	stream   *Stream
	outbox   *Outbox
	history  *rewind.Detector
	events   events.EventRecorder
	loop     *liveness.Loop
	added    func(node string) // is told of nodes with events in the outbox
	doubted  func()            // is told that there are doubtful nodes

	mu sync.Mutex
	// initial are the nodes of the first list, until they are compared with their records.
	initial map[string]*metav1.PartialObjectMetadata
	// doubtful are nodes that may have changed in a gap, until they are compared with their
	// records.
	doubtful map[string]doubt
}

// doubt is a node as a list has it.
type doubt struct {
	list int
	node *metav1.PartialObjectMetadata
	at   time.Time // when it was observed
}

var _ toolscache.ResourceEventHandler = (*handler)(nil)

// OnAdd takes a node that has appeared, or one of the first list.
func (h *handler) OnAdd(obj any, inInitialList bool) {
	defer h.loop.Begin(handling)()
	n := h.node(obj)
	if n == nil {
		return
	}
	h.stream.Replace(n.Name, "", n.UID)
	if inInitialList {
		h.keep(n)
		return
	}
	h.seen(nil, n, false)
}

// OnUpdate takes a node that has changed. After a restore of etcd that lets the resourceVersions of
// all go on from a higher one (etcdutl snapshot restore --bump-revision) it is the nodes that are
// older than they were.
func (h *handler) OnUpdate(oldObj, newObj any) {
	defer h.loop.Begin(handling)()
	before, after := h.node(oldObj), h.node(newObj)
	if before == nil || after == nil {
		return
	}
	_ = h.history.Compare(before.ResourceVersion, after.ResourceVersion) // it tells those who have to know
	h.stream.Replace(after.Name, before.UID, after.UID)
	h.seen(before, after, false)
}

// OnDelete takes a node that is gone. A tombstone stands for a delete that the watch missed, and
// holds the last state that was seen.
func (h *handler) OnDelete(obj any) {
	defer h.loop.Begin(handling)()
	tombstone, missed := obj.(toolscache.DeletedFinalStateUnknown)
	if missed {
		obj = tombstone.Obj
	}
	n := h.node(obj)
	if n == nil {
		return
	}
	h.stream.Replace(n.Name, n.UID, "")
	h.seen(n, nil, missed)
}

// node returns the metadata of a Node that an informer delivered.
func (h *handler) node(obj any) *metav1.PartialObjectMetadata {
	n, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		h.log.Info("Ignored an event of an object that is not a Node", "object", obj)
	}
	return n
}

// keep keeps a node of the first list until it is compared with its record.
func (h *handler) keep(n *metav1.PartialObjectMetadata) {
	if n.Name == record.RootCAName {
		h.reportNotKept(n)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.initial == nil {
		h.initial = map[string]*metav1.PartialObjectMetadata{}
	}
	h.initial[n.Name] = n
}

// takeInitial returns the nodes of the first list, which was observed at a time, once.
func (h *handler) takeInitial(at time.Time) map[string]doubt {
	h.mu.Lock()
	defer h.mu.Unlock()
	initial := make(map[string]doubt, len(h.initial))
	for name, n := range h.initial {
		initial[name] = doubt{node: n, at: at}
	}
	h.initial = nil
	return initial
}

// seen puts the transactions of an event into the outbox, with the list that they build on, and
// then tells the stream that it is handled.
func (h *handler) seen(before, after *metav1.PartialObjectMetadata, missed bool) {
	last := after
	if last == nil {
		last = before
	}
	at, now := revision.Of(last.ResourceVersion), time.Now()
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
	} else if !observed && h.observer.Doubtful(before, after) {
		h.doubt(doubt{list, after, now})
		h.doubted()
	}
	if !missed {
		h.stream.Handled(last.Name, at)
	}
}

// observe returns the transactions of an event, which was observed or concluded from a list.
func (h *handler) observe(before, after *metav1.PartialObjectMetadata, now time.Time, observed bool) []txn.Transaction {
	if observed {
		return h.observer.Observe(before, after, now)
	}
	return h.observer.ObserveAfterGap(before, after, now)
}

// doubt keeps a node until it is compared with its record.
func (h *handler) doubt(d doubt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.doubtful == nil {
		h.doubtful = map[string]doubt{}
	}
	h.doubtful[d.node.Name] = d
}

// put puts the transactions of an event into the outbox, and forgets a doubt about their node. It
// does both in one step: resolve, in between, would put the earlier state behind the later one.
func (h *handler) put(transactions []txn.Transaction, list int, observed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range transactions {
		h.outbox.Add(Event{Transaction: t, List: list, Observed: observed})
		delete(h.doubtful, t.Node)
	}
}

// doubts returns the nodes that must be compared with their records, of lists whose barrier has
// passed.
func (h *handler) doubts() map[string]doubt {
	h.mu.Lock()
	defer h.mu.Unlock()
	doubtful := map[string]doubt{}
	for name, d := range h.doubtful {
		if h.outbox.Gate.Passed(Event{List: d.list}) {
			doubtful[name] = d
		}
	}
	return doubtful
}

// resolve puts what the comparison of a node with its record gave into the outbox, unless there is
// something later of it by now.
func (h *handler) resolve(d doubt, transactions []txn.Transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := d.node.Name
	if h.doubtful[name].node != d.node {
		return
	}
	delete(h.doubtful, name)
	for _, t := range transactions {
		h.outbox.Add(Event{Transaction: t, List: d.list})
		h.added(name)
	}
}

// addFirst puts what was concluded from the first list before what was observed since.
func (h *handler) addFirst(transactions []txn.Transaction) {
	for _, t := range slices.Backward(transactions) {
		h.outbox.AddFirst(Event{Transaction: t})
		h.added(t.Node)
	}
}

// reportNotKept reports a node that has the one name which no record can have.
func (h *handler) reportNotKept(n *metav1.PartialObjectMetadata) {
	h.log.Info("Ignored a node whose name is that of a ConfigMap in every namespace", "node", n.Name)
	h.events.Eventf(nodes.Reference(n.Name, n.UID), nil, corev1.EventTypeWarning, reasons.LabelsNotKept, "Record",
		"The labels of this node are not kept: every namespace has a ConfigMap of its name already.")
}
