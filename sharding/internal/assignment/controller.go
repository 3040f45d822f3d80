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

// retryPeriod is the delay before the first retry for an object or a ring.
const retryPeriod = time.Second

// missingPeriod is the interval between checks for a resource that the API server does not serve.
const missingPeriod = 5 * time.Second

// workers is the number of rings that are reconciled concurrently, so that one that waits for the
// API server does not delay others.
const workers = 16

// Controller assigns and moves the objects of all rings while this process is the leader. All
// exported fields are required.
type Controller struct {
	// Reader reads rings and namespaces from a cache.
	Reader client.Reader
	// Metadata watches and writes objects.
	Metadata metadata.Interface
	Mapper   meta.RESTMapper
	// Leases reads the Lease of a shard from the API server before objects are taken from the
	// shard.
	Leases coordinationv1client.LeasesGetter
	// Fenced reports whether the API server refuses requests of a shard of a ring for the objects of
	// other shards now. It must not use a cache.
	Fenced   func(ctx context.Context, ring *v1alpha1.ClusterRing, shard string) (bool, error)
	Observer *ring.Observer
	Reports  *ring.Reports
	Recorder events.EventRecorder
	Dialect  ring.Dialect
	// Namespace is the namespace of the sharder. By default, its objects are not assigned.
	Namespace string
	// SyncPeriod bounds the delay between retries and between resyncs.
	SyncPeriod time.Duration
	// Concurrency is the maximum number of concurrent writes per resource.
	Concurrency int

	metrics metrics
	// clock returns the current time. If it is nil, time.Now does.
	clock func() time.Time
	mu    sync.Mutex
	rings map[string]*assigner
}

// now returns the current time.
func (c *Controller) now() time.Time {
	if c.clock != nil {
		return c.clock()
	}
	return time.Now()
}

// Register adds the controller to the manager and registers its metrics.
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
		return fmt.Errorf("adding the assignment controller: %w", err)
	}
	return nil
}

// Assignments returns the counter of assignments, which the webhook increments, too. Call it after
// Register.
func (c *Controller) Assignments() *prometheus.CounterVec { return c.metrics.assignments }

// followShards enqueues a ring when a shard's state changes.
func (c *Controller) followShards(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.Observer.OnChange(func(ring string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: ring}}) })
	return nil
}

// Reconcile updates the view of a ring's assigner.
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
	v.left = c.Observer.Left(of.Name)
	missing, err := c.assignerOf(ctx, of).setView(v)
	c.Reports.Change(of.Name, func(r *ring.Report) { r.Missing = missing })
	if len(missing) > 0 && err == nil {
		return reconcile.Result{RequeueAfter: missingPeriod}, nil
	}
	return reconcile.Result{}, err
}

// selectionOf returns the namespaces that currently belong to a ring.
func (c *Controller) selectionOf(ctx context.Context, of *v1alpha1.ClusterRing) (place.Selection, error) {
	return place.SelectionOf(of, c.Namespace, func(selector labels.Selector) ([]string, error) { //nolint:wrapcheck // the error needs no context
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

// selecting returns the rings that select namespaces by label.
func (c *Controller) selecting(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	rings := &v1alpha1.ClusterRingList{}
	if err := c.Reader.List(ctx, rings); err != nil {
		return nil // unreachable: the cache is synced
	}
	for _, r := range rings.Items {
		if r.Spec.NamespaceSelector != nil {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: r.Name}})
		}
	}
	return requests
}

// assignerOf returns the assigner of a ring, and starts one if necessary. ctx must not end before
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

// end stops the assigner of a ring.
func (c *Controller) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.rings[name]; a != nil {
		a.stop()
		delete(c.rings, name)
	}
	c.metrics.forget(name)
}
