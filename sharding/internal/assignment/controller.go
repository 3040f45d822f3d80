package assignment

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/internal/ring"
)

// retryPeriod is the time until the second attempt at an object or a ring that fails.
const retryPeriod = time.Second

// missingPeriod is the time between two looks for a resource that the API server does not serve.
const missingPeriod = 5 * time.Second

// workers is how many rings are dealt with at once: one that waits for the API server does not delay the others.
const workers = 16

// Controller assigns and moves the objects of all rings, while this process leads. All exported fields
// are required.
type Controller struct {
	// Reader reads rings and namespaces from a cache.
	Reader client.Reader
	// Metadata watches and changes objects.
	Metadata metadata.Interface
	Mapper   meta.RESTMapper
	// Leases reads the Lease of a shard from the API server, before objects are taken from it.
	Leases   coordinationv1client.LeasesGetter
	Observer *ring.Observer
	Reports  *ring.Reports
	Recorder events.EventRecorder
	Dialect  ring.Dialect
	// Namespace is that of the sharder: by default its objects are not assigned.
	Namespace string
	// SyncPeriod bounds the time between two attempts at what fails, and between two passes.
	SyncPeriod time.Duration
	// Concurrency is how many objects of a resource are written at a time.
	Concurrency int

	metrics metrics
	mu      sync.Mutex
	rings   map[string]*assigner
}

// Register makes the manager run the controller, and registers its metrics.
func (c *Controller) Register(mgr manager.Manager, registry prometheus.Registerer) error {
	c.metrics, c.rings = newMetrics(), map[string]*assigner{}
	for _, collector := range c.metrics.all() {
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of assignments: %w", err)
		}
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryPeriod, c.SyncPeriod)
	err := builder.ControllerManagedBy(mgr).Named("assignment").For(&v1alpha1.ClusterRing{}).
		WatchesRawSource(source.Func(c.followShards)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.selecting), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: limiter}).Complete(c)
	if err != nil {
		return fmt.Errorf("assigning objects: %w", err)
	}
	return nil
}

// followShards enqueues a ring when the state of a shard changes.
func (c *Controller) followShards(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.Observer.Tell(func(ring string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: ring}}) })
	return nil
}

// Reconcile passes a ring as it is now to its assigner.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	of := &v1alpha1.ClusterRing{}
	err := c.Reader.Get(ctx, req.NamespacedName, of)
	if apierrors.IsNotFound(err) || err == nil && (of.DeletionTimestamp != nil || c.Dialect.Ignores(of)) {
		c.end(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ring %q: %w", req.Name, err)
	}
	selection, err := c.selectionOf(ctx, of)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := newView(of, c.Observer.Live(of.Name), selection)
	missing, err := c.assignerOf(ctx, of).show(v) //nolint:contextcheck // it has its own, as it lasts
	c.Reports.Change(of.Name, func(r *ring.Report) { r.Missing = missing })
	if len(missing) > 0 && err == nil {
		return reconcile.Result{RequeueAfter: missingPeriod}, nil
	}
	return reconcile.Result{}, err
}

// selectionOf returns which namespaces belong to a ring now.
func (c *Controller) selectionOf(ctx context.Context, of *v1alpha1.ClusterRing) (place.Selection, error) {
	return place.SelectionOf(of, c.Namespace, func(selector labels.Selector) ([]string, error) { //nolint:wrapcheck // it says what failed
		namespaces := &metav1.PartialObjectMetadataList{}
		namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
		err := c.Reader.List(ctx, namespaces, client.MatchingLabelsSelector{Selector: selector})
		names := make([]string, len(namespaces.Items))
		for i := range namespaces.Items {
			names[i] = namespaces.Items[i].Name
		}
		return names, err
	})
}

// selecting returns the rings that select namespaces by their labels.
func (c *Controller) selecting(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	rings := &v1alpha1.ClusterRingList{}
	if err := c.Reader.List(ctx, rings); err != nil {
		return nil // the cache has been read before
	}
	for _, r := range rings.Items {
		if r.Spec.NamespaceSelector != nil {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: r.Name}})
		}
	}
	return requests
}

// assignerOf returns the assigner of a ring, which is begun if there is none. ctx must last as long as
// the controller.
func (c *Controller) assignerOf(ctx context.Context, of *v1alpha1.ClusterRing) *assigner {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.rings[of.Name]
	if a != nil && a.uid == of.UID {
		return a
	}
	if a != nil {
		a.stop()
	}
	a = newAssigner(ctx, c, of)
	c.rings[of.Name] = a
	return a
}

// end ends the assigner of a ring that is gone.
func (c *Controller) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.rings[name]; a != nil {
		a.stop()
		delete(c.rings, name)
	}
	c.metrics.forget(name)
}
