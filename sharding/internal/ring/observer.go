package ring

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

const (
	// lookPeriod is the interval between evaluations of the Leases of a ring, which cause no
	// requests.
	lookPeriod = 200 * time.Millisecond
	// orphanAfter is how long a shard must be dead before its Lease is deleted.
	orphanAfter = time.Minute
)

// Observer follows the Leases of the shards of every ring. All replicas of the sharder run one, so
// that a new leader knows how long each Lease has not been renewed. All exported fields are
// required. It is safe for concurrent use.
type Observer struct {
	// Rings reads the rings.
	Rings client.Reader
	// Leases watches the Leases.
	Leases coordinationv1client.LeasesGetter
	Clock  *shardlease.ServerClock
	Dialect

	mu    sync.Mutex
	rings map[string]*observed
	// changed are called after a change that affects the ring's status.
	changed []func(ring string)
}

// observed is the state of the Leases of one ring.
type observed struct {
	namespace string
	prefix    v1alpha1.Prefix
	followed  time.Time // when this process started to follow the ring
	stop      context.CancelFunc
	listed    bool
	// all holds one Lease for each name, twins the other Leases with these names.
	all, twins []shardlease.Seen
	joined     map[string]time.Time
	vanished   vanished
}

// Reconcile starts or stops following a ring. ctx must not end before the controller.
func (o *Observer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ring := &v1alpha1.ClusterRing{}
	err := o.Rings.Get(ctx, req.NamespacedName, ring)
	if apierrors.IsNotFound(err) || err == nil && o.Ignores(ring) {
		o.follow(ctx, req.Name, "", "")
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	o.follow(ctx, ring.Name, ring.Spec.Shards.Namespace, o.PrefixOf(ring))
	return reconcile.Result{}, nil
}

// follow starts to follow the Leases of a ring in a namespace. An empty namespace stops it.
func (o *Observer) follow(ctx context.Context, ring, namespace string, prefix v1alpha1.Prefix) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.rings[ring]
	if before != nil && before.namespace == namespace {
		return
	}
	now := &observed{namespace: namespace, prefix: prefix, followed: time.Now(), joined: map[string]time.Time{}, vanished: vanished{}}
	if before != nil { // the shards in the previous namespace may still be working
		now.vanished = before.vanished
		now.vanished.observe(before.live(), nil, now.followed)
		before.stop()
		delete(o.rings, ring)
	}
	if namespace == "" {
		return
	}
	ctx, now.stop = context.WithCancel(ctx)
	if o.rings == nil {
		o.rings = map[string]*observed{}
	}
	o.rings[ring] = now
	w := &shardlease.Watch{
		Client: o.Leases, Namespace: scope(namespace), Selector: prefix.RingLabel() + "=" + ring,
		Period: lookPeriod, OrphanAfter: orphanAfter, Duration: unknownDuration,
		Since: func(l *coordinationv1.Lease, at time.Time) time.Time { return o.since(now, l, at) },
	}
	go func() {
		err := w.Run(ctx, func(_ context.Context, at time.Time, all []shardlease.Seen) { o.record(ring, now, at, all) })
		if err != nil {
			logf.FromContext(ctx).Error(err, "Watching the Leases of a ring failed", "ring", ring)
		}
	}()
}

// since returns the time from which to count the age of a Lease that this process sees for the
// first time. The stored age matters only for Leases of the initial list: their shards may have
// died while no sharder was running.
func (o *Observer) since(of *observed, l *coordinationv1.Lease, at time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of.listed {
		return at
	}
	return o.Clock.Since(l, at)
}

// record records the Leases of a ring at a given time, and calls the change handlers if anything
// relevant has changed.
func (o *Observer) record(ring string, of *observed, at time.Time, all []shardlease.Seen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rings[ring] != of {
		return // the ring is followed by another watch by now
	}
	all, twins := Distinct(all)
	changed := of.vanished.observe(of.live(), of.own(all), at)
	changed = changed || !of.listed || !slices.EqualFunc(of.all, all, of.sameShard) || !slices.EqualFunc(of.twins, twins, of.sameShard)
	joined := map[string]time.Time{}
	for _, seen := range all {
		name := seen.Lease.Name
		if !stateOf(seen, of.prefix).Live() {
			continue
		}
		joined[name] = at
		if since, ok := of.joined[name]; ok {
			joined[name] = since
		}
	}
	of.listed, of.all, of.twins, of.joined = true, all, twins, joined
	if !changed {
		return
	}
	for _, notify := range o.changed {
		notify(ring)
	}
}

// sameShard reports whether two sightings are equivalent. A renewal alone makes no difference.
func (of *observed) sameShard(a, b shardlease.Seen) bool {
	state, handover := of.prefix.StateLabel(), of.prefix.HandoverLabel()
	return a.Lease.UID == b.Lease.UID && a.Lease.Name == b.Lease.Name && stateOf(a, of.prefix) == stateOf(b, of.prefix) &&
		a.Lease.Labels[state] == b.Lease.Labels[state] && a.Lease.Labels[handover] == b.Lease.Labels[handover]
}

// own returns the Leases except the ones that a client with another name holds: their shards may
// not have noticed yet.
func (of *observed) own(all []shardlease.Seen) []shardlease.Seen {
	return slices.DeleteFunc(slices.Clone(all), func(s shardlease.Seen) bool {
		reason, _ := objection(s.Lease, of.prefix)
		return reason == NameConflict
	})
}

// live returns the Leases of live shards.
func (of *observed) live() []shardlease.Seen {
	return slices.DeleteFunc(slices.Clone(of.all), func(s shardlease.Seen) bool {
		reason, _ := objection(s.Lease, of.prefix)
		return reason != "" || !stateOf(s, of.prefix).Live()
	})
}

// Observation is the last observed state of a ring.
type Observation struct {
	// Leases holds one Lease for each name, Twins the other Leases with these names.
	Leases, Twins []shardlease.Seen
	// Vanished are the shards whose Leases were deleted but that may still be alive, sorted by
	// name.
	Vanished []string
	// Joined records since when each live shard has been observed alive.
	Joined map[string]time.Time
}

// Unlisted returns how long the Leases of a ring in a namespace could not be listed. It returns
// zero if they were listed or the observer does not follow the ring.
func (o *Observer) Unlisted(ring, namespace string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil || of.listed || of.namespace != namespace {
		return 0
	}
	return now.Sub(of.followed)
}

// Seen returns the observed state of a ring in a namespace. It returns false if the Leases were
// never listed. Shards in the table without a Lease are added to the vanished ones.
func (o *Observer) Seen(ring, namespace string, inTable []string, now time.Time) (Observation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil || !of.listed || of.namespace != namespace {
		return Observation{}, false
	}
	of.vanished.addMissing(inTable, of.own(of.all), now)
	return Observation{Leases: of.all, Twins: of.twins, Vanished: of.vanished.names(), Joined: maps.Clone(of.joined)}, true
}

// Live returns the names of the live shards of a ring according to their Leases. The table may not
// contain them yet.
func (o *Observer) Live(ring string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil {
		return nil
	}
	names := of.vanished.names()
	for _, s := range of.live() {
		names = append(names, s.Lease.Name)
	}
	return names
}

// Left returns the names of the dead shards of a ring that were leaving when they died, according to
// their Leases.
func (o *Observer) Left(ring string) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil {
		return nil
	}
	for _, s := range of.own(of.all) {
		if isLeaving(s.Lease, of.prefix) && !stateOf(s, of.prefix).Live() {
			names = append(names, s.Lease.Name)
		}
	}
	return names
}

// renewalMargin is the minimum time between a change and a later renewal of a shard's Lease, both
// as observed by the sharder, for the renewal to prove that the shard was connected after the
// change. A renewal that was sent before the change may be observed after it.
const renewalMargin = 2 * time.Second

// Unaware returns the shards of a ring that may not have observed a change yet, because nothing
// proves that they were connected to the API server since. These are shards of protocol 2 that have
// not renewed their Leases since the change, and shards whose Leases were deleted. They lose the
// right to act within twice the duration of their Leases. Shards of other protocols are not
// included, because nothing is known about their connections. It returns false if the Leases of the
// ring were not listed.
func (o *Observer) Unaware(ring string, changed time.Time) (names []string, listed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil || !of.listed {
		return nil, false
	}
	names = of.vanished.names()
	for _, s := range of.live() {
		silent := s.Since.Before(changed.Add(renewalMargin)) && s.State != shardlease.Uncertain
		if silent && s.Lease.Annotations[of.prefix.ProtocolAnnotation()] == v1alpha1.Protocol2 {
			names = append(names, s.Lease.Name)
		}
	}
	return names, true
}

// OnChange registers a function that is called after each change that affects the status of a ring.
// The function must not block.
func (o *Observer) OnChange(changed func(ring string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, changed)
}
