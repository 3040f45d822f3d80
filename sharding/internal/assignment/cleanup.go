package assignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
)

// cleanAfter is the minimum time between the end of labelling, or the last label found, and the
// final check of a resource. By then, writes in flight have arrived, and the API server, which
// checks for changed policies once a second, has noticed that they are deleted.
const cleanAfter = writeTimeout + time.Second

// Cleaner removes the sharding metadata of objects that no longer belong to a ring, because the
// ring is being deleted or a resource has left it. A ring is deleted only afterwards. All exported
// fields are required.
type Cleaner struct {
	// Client reads rings from a cache and removes their finalizers.
	Client   client.Client
	Metadata metadata.Interface
	Mapper   meta.RESTMapper
	Reports  *ring.Reports
	Dialect  ring.Dialect
	// Unpolice removes the policies of a ring, which label new objects.
	Unpolice func(ctx context.Context, ring string) error
	// Unaware returns the shards that may not have noticed changes since the given time, and
	// whether they are known.
	Unaware func(ring string, since time.Time) (names []string, known bool)
	// SyncPeriod bounds the delay between retries.
	SyncPeriod time.Duration
	// Concurrency is the maximum number of concurrent writes.
	Concurrency int

	mu sync.Mutex
	// left records when this process first noticed that a resource has left its ring, or last found
	// a label on one of its objects.
	left map[leaving]time.Time
}

// leaving is a resource that has left a ring, or whose ring is being deleted.
type leaving struct {
	ring     types.UID
	resource v1alpha1.GroupResource
}

// Register adds the cleaner to the manager.
func (c *Cleaner) Register(mgr manager.Manager) error {
	c.left = map[leaving]time.Time{}
	err := builder.ControllerManagedBy(mgr).Named("cleanup").For(&v1alpha1.ClusterRing{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryPeriod, c.SyncPeriod),
		}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("adding the cleanup controller: %w", err)
	}
	return nil
}

// Reconcile cleans up the objects that have left a ring.
func (c *Cleaner) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	of := &v1alpha1.ClusterRing{}
	err := c.Client.Get(ctx, req.NamespacedName, of)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ring %q: %w", req.Name, err)
	}
	deleting := of.DeletionTimestamp != nil
	if !deleting && c.Dialect.Ignores(of) {
		return reconcile.Result{}, nil
	}
	if deleting && !controllerutil.ContainsFinalizer(of, v1alpha1.Finalizer) {
		c.forget(of.UID)
		return reconcile.Result{}, nil
	}
	if deleting {
		if err := c.Unpolice(ctx, of.Name); err != nil {
			return reconcile.Result{}, err
		}
	}
	cleaned, err := c.cleanAll(ctx, of)
	left := c.leaving(of)
	c.Reports.Change(of.Name, func(r *ring.Report) { r.Cleaned, r.CleanedFor = cleaned, of.Generation })
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case len(cleaned) < len(left):
		return reconcile.Result{RequeueAfter: retryPeriod}, nil
	case deleting:
		return reconcile.Result{}, c.release(ctx, of)
	}
	return reconcile.Result{}, nil
}

// leaving returns the resources whose objects may have labels but must not.
func (c *Cleaner) leaving(of *v1alpha1.ClusterRing) []v1alpha1.GroupResource {
	if of.DeletionTimestamp != nil {
		return of.Status.LabelledResources
	}
	wanted := ring.Resources(&of.Spec)
	return slices.DeleteFunc(slices.Clone(of.Status.LabelledResources), func(r v1alpha1.GroupResource) bool { return slices.Contains(wanted, r) })
}

// cleanAll cleans up all resources that leave a ring. It returns the resources whose objects
// permanently have no labels and whose former shards have noticed that: a later ring of the same
// name may assign the objects to other shards.
func (c *Cleaner) cleanAll(ctx context.Context, of *v1alpha1.ClusterRing) (cleaned []v1alpha1.GroupResource, err error) {
	var failed []error
	c.keepOnly(of)
	for _, resource := range c.leaving(of) {
		since := c.since(leaving{of.UID, resource})
		begin := time.Now()
		found, err := c.clean(ctx, keysOf(c.Dialect.PrefixOf(of), of.Name), resource)
		switch {
		case err != nil:
			failed = append(failed, err)
		case found > 0:
			c.found(leaving{of.UID, resource})
		case begin.Sub(since) < cleanAfter:
		case c.awaits(ctx, of, resource, since):
		default:
			cleaned = append(cleaned, resource)
		}
	}
	return cleaned, errors.Join(failed...)
}

// listPatience is how long to wait for the first list of the ring's Leases. A ring whose Leases
// cannot be listed can also be deleted.
const listPatience = time.Minute

// awaits reports whether shards may not have noticed yet that objects were taken from them.
func (c *Cleaner) awaits(ctx context.Context, of *v1alpha1.ClusterRing, resource v1alpha1.GroupResource, since time.Time) bool {
	shards, known := c.Unaware(of.Name, since)
	if !known {
		return time.Since(since) < listPatience
	}
	if len(shards) > 0 {
		logf.FromContext(ctx).V(1).Info("Waiting for shards to notice that objects were taken from them", "shards", shards, "resource", resource.Resource)
	}
	return len(shards) > 0
}

// keepOnly forgets the resources that have returned to a ring.
func (c *Cleaner) keepOnly(of *v1alpha1.ClusterRing) {
	left := c.leaving(of)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.left, func(what leaving, _ time.Time) bool {
		return what.ring == of.UID && !slices.Contains(left, what.resource)
	})
}

// found records that objects of a resource still had labels, which are now removed.
func (c *Cleaner) found(what leaving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left[what] = time.Now()
}

// since returns when a resource was first noticed to have left, or when a label was last found on
// one of its objects.
func (c *Cleaner) since(what leaving) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.left[what]; !ok {
		c.left[what] = time.Now()
	}
	return c.left[what]
}

func (c *Cleaner) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what := range c.left {
		if what.ring == uid {
			delete(c.left, what)
		}
	}
}

// clean removes the sharding metadata of a ring from the objects of a resource. It returns the
// number of objects that had any.
func (c *Cleaner) clean(ctx context.Context, k keys, resource v1alpha1.GroupResource) (found int64, err error) {
	kind, err := c.Mapper.KindFor(schema.GroupVersionResource{Group: resource.Group, Resource: resource.Resource})
	var mapping *meta.RESTMapping
	if err == nil {
		mapping, err = c.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if meta.IsNoMatchError(err) {
		return 0, nil // the resource is gone, and its objects with it
	}
	if err != nil {
		return 0, fmt.Errorf("finding resource %q of group %q: %w", resource.Resource, resource.Group, err)
	}
	objects := c.Metadata.Resource(mapping.Resource)
	var all atomic.Int64
	var failed failures
	for _, label := range []string{k.shard, k.drain} {
		err := c.each(ctx, objects, label, func(m *metav1.PartialObjectMetadata) {
			all.Add(1)
			m = k.strip("", m)
			failed.add(ignoreGone(unlabel(ctx, server{client: objects}, k, m)))
		})
		failed.add(ignoreGone(err)) // the resource itself may be gone
	}
	if err := failed.join(); err != nil {
		return all.Load(), fmt.Errorf("removing the labels of %s: %w", resource.Resource, err)
	}
	if n := all.Load(); n > 0 {
		logf.FromContext(ctx).Info("Removed the sharding labels of objects", "resource", mapping.Resource.String(), "objects", n)
	}
	return all.Load(), nil
}

// unlabel removes the sharding metadata of a ring from an object.
func unlabel(ctx context.Context, objects api, k keys, m *metav1.PartialObjectMetadata) error {
	_, err := objects.patch(ctx, m, []string{k.shard, k.drain}, k.removal())
	return err //nolint:wrapcheck // patch adds the context
}

// each calls do concurrently for every object that has a label.
func (c *Cleaner) each(ctx context.Context, objects metadata.ResourceInterface, label string, do func(*metav1.PartialObjectMetadata)) error {
	limit := make(chan struct{}, c.Concurrency)
	var writes sync.WaitGroup
	defer writes.Wait()
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) })
	return list.EachListItem(ctx, metav1.ListOptions{LabelSelector: label}, func(object runtime.Object) error { //nolint:wrapcheck // clean adds the context
		m, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return nil
		}
		limit <- struct{}{}
		writes.Go(func() {
			defer func() { <-limit }()
			do(m)
		})
		return nil
	})
}

// release removes the finalizer of a ring.
func (c *Cleaner) release(ctx context.Context, of *v1alpha1.ClusterRing) error {
	after := of.DeepCopy()
	controllerutil.RemoveFinalizer(after, v1alpha1.Finalizer)
	err := c.Client.Patch(ctx, after, client.MergeFromWithOptions(of, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the finalizer of ring %q: %w", of.Name, err)
	}
	c.forget(of.UID)
	return nil
}

// ignoreGone returns nil if the error means that the object is gone or has changed; the next check
// finds its current state. Otherwise it returns err.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || errors.Is(err, errConflict) {
		return nil
	}
	return err
}

// failures collects the first few errors. It is safe for concurrent use.
type failures struct {
	mu  sync.Mutex
	all []error
}

// maxFailures is the number of errors that are reported.
const maxFailures = 3

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && len(f.all) < maxFailures {
		f.all = append(f.all, err)
	}
}

func (f *failures) join() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.all...)
}
