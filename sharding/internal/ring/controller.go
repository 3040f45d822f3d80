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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
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
	"nodekeeper.dev/sharding/internal/place"
)

const (
	// statusPeriod is the minimum interval between two writes of a status that do not change the
	// table.
	statusPeriod = time.Second
	// retryPeriod is the delay between attempts to take over the Lease of a silent shard.
	retryPeriod = time.Second
	// tidyPeriod is the delay between attempts to delete Leases of dead shards and to update
	// labels.
	tidyPeriod = 10 * time.Second
	// writeTimeout bounds each write of a Lease, so that one that hangs does not delay the
	// following ones for long.
	writeTimeout = 2 * time.Second
	// listTimeout is how long the Leases of a ring may remain unlisted before the ring is not
	// ready.
	listTimeout = 5 * time.Second
	// workers is the number of rings that are reconciled concurrently, so that a failing one does
	// not delay others.
	workers = 16
)

// Controller keeps the status of the rings and removes the Leases of dead shards. It writes only
// while this process is the leader. All exported fields are required.
type Controller struct {
	// Client writes rings and reads them from a cache.
	Client   client.Client
	Observer *Observer
	Reports  *Reports
	Recorder events.EventRecorder
	// Pods reads the pods of joining shards.
	Pods corev1client.PodsGetter
	// SyncPeriod bounds the delay between retries for a failing ring.
	SyncPeriod time.Duration

	metrics metrics
	mu      sync.Mutex
	// pods records what was seen of the pods of joining shards, by ring and shard.
	pods map[string]map[string]*podSeen
	// written records when this process last wrote the status of each ring.
	written map[string]time.Time
	// direct records when the Leases of a ring with unlabelled controlled resources were last seen
	// to carry the label that no objects have children.
	direct map[string]time.Time
}

// Register adds the controller and its observer to the manager and registers their metrics.
func (c *Controller) Register(mgr manager.Manager, registry prometheus.Registerer) error {
	c.metrics, c.written, c.direct, c.pods = newMetrics(), map[string]time.Time{}, map[string]time.Time{}, map[string]map[string]*podSeen{}
	for _, collector := range c.metrics.all() {
		if err := registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of rings: %w", err)
		}
	}
	err := builder.ControllerManagedBy(mgr).Named("observer").For(&v1alpha1.ClusterRing{}).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: c.limiter()}).Complete(c.Observer)
	if err != nil {
		return fmt.Errorf("adding the observer of rings: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named("ring").For(&v1alpha1.ClusterRing{}).
		WatchesRawSource(source.Func(c.followShards)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: c.limiter()}).Complete(c)
	if err != nil {
		return fmt.Errorf("adding the ring controller: %w", err)
	}
	return nil
}

func (c *Controller) limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, c.SyncPeriod)
}

// followShards enqueues a ring when a shard's state or a report changes.
func (c *Controller) followShards(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	enqueue := func(ring string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: ring}}) }
	c.Observer.OnChange(enqueue)
	c.Reports.onChange(enqueue)
	return nil
}

// Reconcile updates the status of a ring and tidies its Leases.
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
		return reconcile.Result{}, nil // the cleaner handles deletion, and no objects are assigned any more
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
		return c.await(ctx, ring, now) // the observer enqueues the ring once its Leases are listed
	}
	prefix := c.Observer.PrefixOf(ring)
	shards, rejected := Shards(seen, prefix, inTable)
	recheck := c.awaitPods(ctx, ring, shards, now)
	table, wait := Next(ring.Status.Table, shards, settleOf(ring), now)
	pause, held := retryPeriod, c.heldBack(ring, shards, now)
	confirmed := c.confirm(ctx, ring, table)
	if confirmed {
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
	return reconcile.Result{RequeueAfter: earliest(wait, recheck, pause, retryAfter(ring, shards, prefix))}, nil
}

// guard adds the finalizer that delays the ring's deletion until its sharding metadata is removed.
// The update of the ring triggers the next reconcile.
func (c *Controller) guard(ctx context.Context, ring *v1alpha1.ClusterRing) error {
	after := ring.DeepCopy()
	controllerutil.AddFinalizer(after, v1alpha1.Finalizer)
	err := c.Client.Patch(ctx, after, client.MergeFromWithOptions(ring, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // an event with the current version follows
	}
	if err != nil {
		return fmt.Errorf("adding the finalizer of ring %q: %w", ring.Name, err)
	}
	return nil
}

// await reports that the ring is not ready if its Leases have been unlisted for too long.
func (c *Controller) await(ctx context.Context, ring *v1alpha1.ClusterRing, now time.Time) (reconcile.Result, error) {
	if c.Observer.Unlisted(ring.Name, ring.Spec.Shards.Namespace, now) < listTimeout {
		return reconcile.Result{RequeueAfter: listTimeout}, nil
	}
	status, report := unlisted(ring), c.Reports.of(ring.Name)
	report.addConditions(ring, status)
	_, err := c.store(ctx, ring, status, now)
	return reconcile.Result{RequeueAfter: listTimeout}, err
}

// errStillHeld means that a shard missing from the cache still holds its Lease.
var errStillHeld = errors.New("the shard still holds its Lease")

// confirm reports whether live reads show that the shards that a new table no longer contains are
// gone. A process that was frozen, or whose watch is behind, does not know about shards that have
// joined since. Shards whose Leases were deleted have already been given time to return.
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
			err = errStillHeld
		}
		if err != nil {
			logf.FromContext(ctx).Info("Kept a shard in the table that may still be alive", "ring", ring.Name, "shard", name, "reason", err.Error())
			return false
		}
	}
	return true
}

// settleOf returns the settle time of a ring. The API server sets the default.
func settleOf(ring *v1alpha1.ClusterRing) time.Duration {
	if settle := ring.Spec.Handover.Settle; settle != nil {
		return settle.Duration
	}
	return 0
}

// retryAfter returns the delay before unfinished work on the Leases is retried, or zero if there is
// none.
func retryAfter(ring *v1alpha1.ClusterRing, shards []Shard, prefix v1alpha1.Prefix) (pause time.Duration) {
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

// earliest returns the smallest nonzero duration, or zero if there is none.
func earliest(all ...time.Duration) (least time.Duration) {
	for _, d := range all {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// store writes the status of a ring, conditional on the version that was read. Changes that do not
// affect the table are written at most once a second; if it is too early, store returns the
// remaining delay.
func (c *Controller) store(ctx context.Context, ring *v1alpha1.ClusterRing, status *v1alpha1.ClusterRingStatus, now time.Time) (pause time.Duration, err error) {
	before := &ring.Status
	c.metrics.set(ring.Name, status)
	if equality.Semantic.DeepEqual(before, status) {
		return 0, nil
	}
	newTable := isNew(before.Table, status.Table)
	if left := c.lastWritten(ring.Name).Add(statusPeriod).Sub(now); left > 0 && !newTable {
		return left, nil
	}
	after := ring.DeepCopy()
	after.Status = *status
	patch := client.MergeFromWithOptions(ring, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Status().Patch(ctx, after, patch); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return statusPeriod, nil // the cache will catch up
		}
		return 0, fmt.Errorf("storing the status of ring %q: %w", ring.Name, err)
	}
	c.wrote(ring.Name, now)
	if newTable {
		if before.Table == nil || !slices.Equal(before.Table.Slots, status.Table.Slots) {
			c.metrics.computations.WithLabelValues(ring.Name).Inc()
		}
		logf.FromContext(ctx).Info("Computed a table", "ring", ring.Name, "generation", status.Table.Generation, "shards", status.Table.Shards)
	}
	c.emitEvents(ring, before, status)
	return 0, nil
}

// isNew reports whether a table must be stored at once because its shards or their slots differ.
func isNew(before, after *v1alpha1.Table) bool {
	if before == nil || after == nil {
		return before != after
	}
	return !slices.Equal(before.Shards, after.Shards) || !slices.Equal(before.Slots, after.Slots)
}

// isProblem are the reasons of other conditions that are problems.
var isProblem = map[string]bool{installFailed: true, MovesFailing: true, place.FenceUnsupported: true}

// emitEvents emits events for new problems. Moving objects and a pending policy installation are
// not problems.
func (c *Controller) emitEvents(ring *v1alpha1.ClusterRing, before, after *v1alpha1.ClusterRingStatus) {
	for _, condition := range after.Conditions {
		problem := condition.Type == conditionReady || condition.Type == conditionShardsAccepted || isProblem[condition.Reason]
		if !problem || !isFalse(after, condition.Type, condition.Reason) || isFalse(before, condition.Type, condition.Reason) {
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
	delete(c.pods, ring)
}
