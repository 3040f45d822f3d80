package ring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	// statusPeriod is the least time between two writes of a status that do not change the table.
	statusPeriod = time.Second
	// retryPeriod is the time between two attempts to take over the Lease of a silent shard.
	retryPeriod = time.Second
	// tidyPeriod is the time between two attempts at what is left of dead shards, and at labels.
	tidyPeriod = 10 * time.Second
	// writeTimeout bounds each write of a Lease: one that hangs must not delay the next ones for long.
	writeTimeout = 2 * time.Second
	// listTimeout is when a ring whose Leases were not listed is not ready.
	listTimeout = 5 * time.Second
	// workers is how many rings are worked on at a time: one that fails does not delay the others.
	workers = 16
)

// Controller keeps the status of the rings, and the Leases of shards that are gone. It writes only
// while this process leads. All exported fields are required.
type Controller struct {
	// Client writes rings, and reads them from a cache.
	Client   client.Client
	Observer *Observer
	Reports  *Reports
	Recorder events.EventRecorder
	// SyncPeriod bounds the time between two attempts at a ring that fails.
	SyncPeriod time.Duration

	metrics metrics
	mu      sync.Mutex
	// written is when the status of each ring was last written by this process.
	written map[string]time.Time
	// direct is when the shards of a ring, which must know that objects have children, were last
	// told that none has.
	direct map[string]time.Time
}

// Register makes the manager run the controller and its observer, and registers their metrics.
func (c *Controller) Register(mgr manager.Manager, registry prometheus.Registerer) error {
	c.metrics, c.written, c.direct = newMetrics(), map[string]time.Time{}, map[string]time.Time{}
	for _, collector := range c.metrics.all() {
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of rings: %w", err)
		}
	}
	err := builder.ControllerManagedBy(mgr).Named("observer").For(&v1alpha1.ClusterRing{}).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: c.limiter()}).Complete(c.Observer)
	if err != nil {
		return fmt.Errorf("following the rings: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("ring").For(&v1alpha1.ClusterRing{}).
		WatchesRawSource(source.Func(c.followShards)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: c.limiter()}).Complete(c)
	if err != nil {
		return fmt.Errorf("keeping the rings: %w", err)
	}
	return nil
}

func (c *Controller) limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, c.SyncPeriod)
}

// followShards enqueues a ring when the state of a shard or a report changes.
func (c *Controller) followShards(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	enqueue := func(ring string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: ring}}) }
	c.Observer.Tell(enqueue)
	c.Reports.tell(enqueue)
	return nil
}

// Reconcile stores what has changed of a ring, and tidies its Leases.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ring := &v1alpha1.ClusterRing{}
	err := c.Client.Get(ctx, req.NamespacedName, ring)
	if apierrors.IsNotFound(err) {
		c.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ring %q: %w", req.Name, err)
	}
	if ring.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // nobody must be assigned any more
	}
	now := time.Now()
	if c.Observer.Ignores(ring) {
		pause, err := c.store(ctx, ring, ignored(ring), now)
		return reconcile.Result{RequeueAfter: pause}, err
	}
	if !controllerutil.ContainsFinalizer(ring, v1alpha1.Finalizer) {
		return reconcile.Result{}, c.guard(ctx, ring)
	}
	var inTable []string
	if ring.Status.Table != nil {
		inTable = ring.Status.Table.Shards
	}
	seen, ok := c.Observer.Seen(ring.Name, ring.Spec.Shards.Namespace, inTable, now)
	if !ok {
		return c.await(ctx, ring, now) // the observer tells when it has seen them
	}
	prefix := c.Observer.PrefixOf(ring)
	shards, rejected := Shards(seen, prefix, inTable)
	table, wait := Next(ring.Status.Table, shards, settleOf(ring), now)
	pause, held := retryPeriod, c.heldBack(ring, shards, now)
	isConfirmed := c.confirm(ctx, ring, table)
	if isConfirmed {
		status := statusOf(ring, shards, rejected, table, c.Reports.of(ring.Name))
		status.LabelledResources = slices.DeleteFunc(status.LabelledResources, func(r v1alpha1.GroupResource) bool { return slices.Contains(held, r) })
		pause, err = c.store(ctx, ring, status, now)
	}
	c.tidy(ctx, ring, shards, seen.Twins)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(held) > 0 {
		pause = earliest(pause, retryPeriod)
	}
	return reconcile.Result{RequeueAfter: earliest(wait, pause, again(ring, shards, prefix))}, nil
}

// guard keeps a ring from being deleted before what the sharder does for it is undone. The change of the
// ring brings it back here.
func (c *Controller) guard(ctx context.Context, ring *v1alpha1.ClusterRing) error {
	after := ring.DeepCopy()
	controllerutil.AddFinalizer(after, v1alpha1.Finalizer)
	err := c.Client.Patch(ctx, after, client.MergeFromWithOptions(ring, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch shows what it is now
	}
	if err != nil {
		return fmt.Errorf("adding the finalizer of ring %q: %w", ring.Name, err)
	}
	return nil
}

// await stores why nothing is known of a ring, if its Leases cannot be listed.
func (c *Controller) await(ctx context.Context, ring *v1alpha1.ClusterRing, now time.Time) (reconcile.Result, error) {
	if c.Observer.Unlisted(ring.Name, ring.Spec.Shards.Namespace, now) < listTimeout {
		return reconcile.Result{RequeueAfter: listTimeout}, nil
	}
	_, err := c.store(ctx, ring, unlisted(ring), now)
	return reconcile.Result{RequeueAfter: listTimeout}, err
}

// errLives means that a shard which the cache does not show lives.
var errLives = errors.New("the shard holds its Lease")

// confirm reports whether live reads show that the shards which a table no longer has are gone: a
// process that was frozen, or whose watch is behind, does not know of those that have joined since. Who
// has vanished was waited for.
func (c *Controller) confirm(ctx context.Context, ring *v1alpha1.ClusterRing, table *v1alpha1.Table) bool {
	before := ring.Status.Table
	if before == nil || before == table {
		return true
	}
	for _, name := range before.Shards {
		if slices.Contains(table.Shards, name) {
			continue
		}
		holds, err := c.Observer.Holds(ctx, c.Observer.Leases, ring, name)
		if holds {
			err = errLives
		}
		if err != nil {
			logf.FromContext(ctx).Info("Keeping a shard in the table that seemed to be gone", "ring", ring.Name, "shard", name, "reason", err.Error())
			return false
		}
	}
	return true
}

// settleOf returns the settle time, which the API server sets if the ring's author has not.
func settleOf(ring *v1alpha1.ClusterRing) time.Duration {
	if settle := ring.Spec.Handover.Settle; settle != nil {
		return settle.Duration
	}
	return 0
}

// again returns when to try again what could not be done for the Leases, zero if nothing is left.
func again(ring *v1alpha1.ClusterRing, shards []Shard, prefix v1alpha1.Prefix) (pause time.Duration) {
	for _, s := range shards {
		switch {
		case s.Lease == nil:
		case s.State == Uncertain:
			return retryPeriod
		case s.State == Orphaned || !hasLabels(s.Lease, labelsOf(s, ring, prefix)):
			pause = tidyPeriod
		}
	}
	return pause
}

// earliest returns the least duration that is not zero, zero if all are.
func earliest(all ...time.Duration) (least time.Duration) {
	for _, d := range all {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// store writes the status of a ring, conditional on the ring that was read. What is not about the table
// is written once a second at most: pause is then how long to wait.
func (c *Controller) store(ctx context.Context, ring *v1alpha1.ClusterRing, status *v1alpha1.ClusterRingStatus, now time.Time) (pause time.Duration, err error) {
	before := &ring.Status
	c.metrics.show(ring.Name, status)
	if equality.Semantic.DeepEqual(before, status) {
		return 0, nil
	}
	hasNewTable := isNew(before.Table, status.Table)
	if left := c.lastWritten(ring.Name).Add(statusPeriod).Sub(now); left > 0 && !hasNewTable {
		return left, nil
	}
	after := ring.DeepCopy()
	after.Status = *status
	patch := client.MergeFromWithOptions(ring, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Status().Patch(ctx, after, patch); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return statusPeriod, nil // the cache shows soon what it is now
		}
		return 0, fmt.Errorf("storing the status of ring %q: %w", ring.Name, err)
	}
	c.wrote(ring.Name, now)
	if hasNewTable {
		if before.Table == nil || !slices.Equal(before.Table.Slots, status.Table.Slots) {
			c.metrics.computations.WithLabelValues(ring.Name).Inc()
		}
		logf.FromContext(ctx).Info("Computed a table", "ring", ring.Name, "generation", status.Table.Generation, "shards", status.Table.Shards)
	}
	c.tell(ring, before, status)
	return 0, nil
}

// isNew reports whether a table must be stored at once: it has other shards, or gives them other slots.
func isNew(before, after *v1alpha1.Table) bool {
	if before == nil || after == nil {
		return before != after
	}
	return !slices.Equal(before.Shards, after.Shards) || !slices.Equal(before.Slots, after.Slots)
}

// tell creates events about what has become wrong. That objects move, or that a policy is being installed,
// is not wrong.
func (c *Controller) tell(ring *v1alpha1.ClusterRing, before, after *v1alpha1.ClusterRingStatus) {
	for _, condition := range after.Conditions {
		isWrong := condition.Type == conditionReady || condition.Type == conditionShardsAccepted || condition.Reason == installFailed
		if !isWrong || !isFalse(after, condition.Type, condition.Reason) || isFalse(before, condition.Type, condition.Reason) {
			continue
		}
		c.Recorder.Eventf(ring, nil, corev1.EventTypeWarning, condition.Reason, "Reconcile", "%s", condition.Message)
	}
}

func (c *Controller) lastWritten(ring string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written[ring]
}

func (c *Controller) wrote(ring string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[ring] = at
}

func (c *Controller) forget(ring string) {
	c.Reports.Forget(ring)
	c.metrics.forget(ring)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, ring)
	delete(c.direct, ring)
}
