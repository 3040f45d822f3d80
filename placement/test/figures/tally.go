package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/metrics"
)

// tally follows the Queues and the Leases with watches. Repeated lists would slow down what is
// measured. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	ready  map[string]bool   // by the name of the Queue
	acks   map[string]string // by the pod
	writes int               // of acknowledgements
	latest time.Time         // when a Queue has changed
}

func newTally() *tally { return &tally{ready: map[string]bool{}, acks: map[string]string{}} }

// followQueues follows the Queues until ctx ends.
func (t *tally) followQueues(ctx context.Context, c client.WithWatch) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(queues.Kind)
	follow(ctx, c, list, newKind(), func(o client.Object, isDeleted bool) {
		q, ok := o.(*unstructured.Unstructured)
		if !ok {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.latest = time.Now()
		if t.ready[q.GetName()] = isReady(q); isDeleted {
			delete(t.ready, q.GetName())
		}
	})
}

// isReady reports whether a Queue is Ready for its generation.
func isReady(q *unstructured.Unstructured) bool {
	all, _, _ := unstructured.NestedSlice(q.Object, "status", "conditions")
	return slices.ContainsFunc(all, func(one any) bool {
		c, ok := one.(map[string]any)
		return ok && c["type"] == ready.Ready && c["status"] == string(metav1.ConditionTrue) && c["observedGeneration"] == q.GetGeneration()
	})
}

// followLeases follows the Leases of the pool until ctx ends.
func (t *tally) followLeases(ctx context.Context, c client.WithWatch) {
	follow(ctx, c, &coordinationv1.LeaseList{}, &coordinationv1.Lease{}, func(o client.Object, _ bool) {
		if o.GetLabels()[contract.PoolLabel] != pool {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		ack := o.GetAnnotations()[contract.AcknowledgedAnnotation]
		if before, known := t.acks[o.GetName()]; known && before != ack {
			t.writes++
		}
		t.acks[o.GetName()] = ack
	})
}

// follow calls handle for each version of the objects of a kind until ctx ends.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, one client.Object, handle func(o client.Object, isDeleted bool)) {
	empty := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) } //nolint:forcetypeassert // a copy of it
	changed := func(obj any, isDeleted bool) {
		if final, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = final.Obj
		}
		if o, ok := obj.(client.Object); ok {
			handle(o, isDeleted)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				all := empty()
				return all, c.List(ctx, all, &client.ListOptions{Namespace: namespace, Raw: &o})
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.Watch(ctx, empty(), &client.ListOptions{Namespace: namespace, Raw: &o})
			},
		},
		ObjectType: one,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { changed(obj, false) },
			UpdateFunc: func(_, obj any) { changed(obj, false) },
			DeleteFunc: func(obj any) { changed(obj, true) },
		},
	})
	informer.RunWithContext(ctx)
}

// queues returns the number of Queues.
func (t *tally) queues() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ready)
}

// isReady reports whether all Queues are Ready.
func (t *tally) isReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, is := range t.ready {
		if !is {
			return false
		}
	}
	return true
}

// members returns the number of Leases.
func (t *tally) members() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.acks)
}

// acknowledgements returns how many writes of Leases had another acknowledgement.
func (t *tally) acknowledgements() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writes
}

func (t *tally) last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

// String describes the Queues.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, is := range t.ready {
		if is {
			n++
		}
	}
	return fmt.Sprintf("%d of %d Queues are Ready", n, len(t.ready))
}

// requests are the requests that were answered, by kind. Those of Leases are only the
// acknowledgements.
type requests map[string]int

// acknowledged is the kind of acknowledgements.
const acknowledged = "acknowledgements"

// requests returns what was answered so far, but watches.
func (b *bench) requests(ctx context.Context) (requests, error) {
	families, err := metrics.OfAPIServer(ctx, b.plane.Config)
	if err != nil {
		return nil, err
	}
	all := requests{acknowledged: b.tally.acknowledgements()}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		resource, verb := metrics.Label(m, "resource"), metrics.Label(m, "verb")
		if slices.Contains([]string{"queues", "configmaps", "events", "statefulsets"}, resource) && verb != "WATCH" {
			all[verb+" "+resource] += int(m.GetCounter().GetValue())
		}
	}
	return all, nil
}

// since returns what was answered since then, but what this program has done.
func (r requests) since(before requests) requests {
	all := requests{}
	for kind, n := range r {
		if n -= before[kind]; n > 0 {
			all[kind] = n
		}
	}
	return all
}

// writes returns the number of writes.
func (r requests) writes() (n int) {
	for kind, count := range r {
		if !strings.HasPrefix(kind, "GET") && !strings.HasPrefix(kind, "LIST") {
			n += count
		}
	}
	return n
}

// String lists the requests.
func (r requests) String() string {
	var all []string
	for kind, n := range r {
		all = append(all, fmt.Sprintf("%d %s", n, kind))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
