package watcher

import (
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/record"
)

// handling is what the loop calls the work of the handler. No node has such a name.
const handling = "an event of the informer"

// handler takes the events of the informer, which calls it from one goroutine.
func (w *Watcher) handler(log logr.Logger) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			defer w.loop.Begin(handling)()
			n := asNode(log, obj)
			if isInInitialList && n != nil {
				w.keepInitial(log, n)
				return
			}
			w.seen(log, nil, n)
		},
		UpdateFunc: func(before, after any) {
			defer w.loop.Begin(handling)()
			w.changed(log, asNode(log, before), asNode(log, after))
		},
		DeleteFunc: func(obj any) {
			defer w.loop.Begin(handling)()
			w.seen(log, asNode(log, obj), nil)
		},
	}
}

// asNode returns the metadata of a Node that an informer delivered. A tombstone stands for a
// delete that the watch missed, and holds the last state that was seen.
func asNode(log logr.Logger, obj any) *metav1.PartialObjectMetadata {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	n, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		log.Info("Ignored an event of what is no Node", "object", obj)
	}
	return n
}

// keepInitial keeps a node of the initial list until it is compared with its record.
func (w *Watcher) keepInitial(log logr.Logger, n *metav1.PartialObjectMetadata) {
	if n.Name == record.RootCAName {
		w.reportNotKept(log, n)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.initial[n.Name] = n
}

// changed is for a node that was there before. After a restore of etcd that lets the resourceVersions of all go on from a
// higher one (etcdutl snapshot restore --bump-revision) it is the nodes that are older than they were.
func (w *Watcher) changed(log logr.Logger, before, after *metav1.PartialObjectMetadata) {
	if before != nil && after != nil {
		_ = w.history.Compare(before.ResourceVersion, after.ResourceVersion) // it tells those who have to know
	}
	w.seen(log, before, after)
}

// seen puts the transactions of an event behind the node's pending ones.
func (w *Watcher) seen(log logr.Logger, before, after *metav1.PartialObjectMetadata) {
	transactions := w.observer.Observe(before, after, time.Now())
	if len(transactions) == 0 {
		return
	}
	node := transactions[0].Node
	if node == record.RootCAName {
		if before == nil {
			w.reportNotKept(log, after)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending[node] = append(w.pending[node], transactions...)
	// Before the start is done nobody takes from the queue, so what is added waits.
	w.work.Add(node)
}

// reportNotKept tells people of a node that has the one name which no record can have.
func (w *Watcher) reportNotKept(log logr.Logger, n *metav1.PartialObjectMetadata) {
	log.Info("Ignored a node whose name is that of a ConfigMap in every namespace", "node", n.Name)
	w.events.Eventf(nodeReference(n.Name, n.UID), nil, corev1.EventTypeWarning, "LabelsNotKept", "Record",
		"The labels of this node are not kept: every namespace has a ConfigMap of its name already.")
}
