package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/internal/ring"
)

// workers is the number of rings that are read concurrently.
const workers = 4

// Rings keeps a decider for each ring. Every replica does this, not only the leader. All exported
// fields are required. It is safe for concurrent use.
type Rings struct {
	// Reader reads rings from a cache.
	Reader    client.Reader
	Resources *policy.Resources
	Dialect   ring.Dialect
	// Namespace is the namespace of the sharder.
	Namespace string
	// SyncPeriod bounds the delay between retries for a failing ring.
	SyncPeriod time.Duration

	mu    sync.Mutex
	rings map[string]*known
	// changes is the number of changes of CRDs.
	changes int
	// ready is set once all rings were known.
	ready bool
}

// known is the cached state of a ring.
type known struct {
	// decider is nil if the ring is ignored or is being deleted.
	decider *policy.Decider
	// resources are the served ones. They need not be looked up again if isCurrent is set and nothing of
	// the following has changed: the number of changes of CRDs, the generation and the labelled resources.
	resources  []policy.Resource
	isCurrent  bool
	changes    int
	generation int64
	labelled   []v1alpha1.GroupResource
	// recheck is the delay after which they must be looked up again, or 0.
	recheck time.Duration
}

// Register adds the controller to the manager.
func (r *Rings) Register(mgr manager.Manager) error {
	changed := func(ctx context.Context, crd client.Object) []reconcile.Request {
		r.countChange()
		return policy.UsersOf(r.Reader)(ctx, crd)
	}
	err := builder.ControllerManagedBy(mgr).Named("webhook").
		For(&v1alpha1.ClusterRing{}, builder.WithPredicates(matters())).
		WatchesMetadata(policy.CRD(), handler.EnqueueRequestsFromMapFunc(changed)).
		WithOptions(controller.Options{
			NeedLeaderElection: new(false), MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, r.SyncPeriod),
		}).Complete(r)
	if err != nil {
		return fmt.Errorf("reading the rings of the webhook: %w", err)
	}
	return nil
}

// matters returns a predicate for changes that can affect a decision. The rest of the status changes
// often.
func matters() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.ClusterRing)
		after, isRing := e.ObjectNew.(*v1alpha1.ClusterRing)
		return ok && isRing && (before.Generation != after.Generation || after.DeletionTimestamp != nil ||
			!slices.Equal(before.Status.LabelledResources, after.Status.LabelledResources) ||
			!equality.Semantic.DeepEqual(before.Status.Table, after.Status.Table))
	}}
}

// Reconcile replaces the decider of one ring.
func (r *Rings) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	of := &v1alpha1.ClusterRing{}
	if err := r.Reader.Get(ctx, req.NamespacedName, of); err != nil {
		r.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // it is not an error that the ring is gone
	}
	if of.DeletionTimestamp != nil || r.Dialect.Ignores(of) {
		r.know(of.Name, &known{})
		return reconcile.Result{}, nil
	}
	now, err := r.served(ctx, of) // the table counts even if it fails
	b := &policy.Builder{Prefix: r.Dialect.PrefixOf(of), Namespace: r.Namespace}
	now.decider = b.Decider(of, now.resources)
	r.know(of.Name, now)
	return reconcile.Result{RequeueAfter: now.recheck}, err
}

// served returns the served resources of a ring, or the last known ones and an error. It looks them up
// again only if they can have changed.
func (r *Rings) served(ctx context.Context, of *v1alpha1.ClusterRing) (*known, error) {
	now := &known{changes: r.currentChanges(), generation: of.Generation, labelled: of.Status.LabelledResources}
	before := r.of(of.Name)
	if before == nil {
		before = &known{}
	}
	if before.isCurrent && before.changes == now.changes && before.generation == now.generation && slices.Equal(before.labelled, now.labelled) {
		now.resources, now.isCurrent = before.resources, true
		return now, nil
	}
	resources, recheck, err := r.Resources.Served(ctx, of)
	if err != nil {
		now.resources = before.resources
		return now, fmt.Errorf("looking up the resources of ring %q: %w", of.Name, err)
	}
	now.resources, now.recheck, now.isCurrent = resources, recheck, recheck == 0
	return now, nil
}

// Ready is a readiness check. It fails until all rings of the cache have been read once, with or without their resources.
func (r *Rings) Ready(req *http.Request) error {
	all := &v1alpha1.ClusterRingList{}
	if r.isReady() {
		return nil
	}
	if err := r.Reader.List(req.Context(), all); err != nil {
		return fmt.Errorf("listing rings from the cache: %w", err)
	}
	for i := range all.Items {
		if r.of(all.Items[i].Name) == nil {
			return errors.New("the webhook has not read ring " + all.Items[i].Name + " yet")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
	return nil
}

func (r *Rings) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// of returns the cached state of a ring, or nil.
func (r *Rings) of(name string) *known {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rings[name]
}

func (r *Rings) know(name string, now *known) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rings == nil {
		r.rings = map[string]*known{}
	}
	r.rings[name] = now
}

func (r *Rings) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rings, name)
}

// countChange counts a change of a CRD.
func (r *Rings) countChange() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

func (r *Rings) currentChanges() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}
