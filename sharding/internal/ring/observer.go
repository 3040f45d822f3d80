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
	// lookPeriod is the time between two looks at the Leases of a ring, which cost nothing but time.
	lookPeriod = 200 * time.Millisecond
	// orphanAfter is for how long a shard must be dead until its Lease is deleted.
	orphanAfter = time.Minute
)

// Observer follows the Leases of the shards of every ring. Each replica of the sharder has one, also
// those that do not lead: a new leader knows for how long each Lease was not renewed. All exported
// fields are required. It is safe for concurrent use.
type Observer struct {
	// Rings reads the rings.
	Rings client.Reader
	// Leases watches the Leases.
	Leases coordinationv1client.LeasesGetter
	Clock  *shardlease.ServerClock
	Dialect

	mu    sync.Mutex
	rings map[string]*observed
	// changed are called after something has changed that the ring's status depends on.
	changed []func(ring string)
}

// observed is what was seen of one ring.
type observed struct {
	namespace string
	prefix    v1alpha1.Prefix
	followed  time.Time // since when
	stop      context.CancelFunc
	isSeen    bool
	// all has one Lease of each name, and twins the others of these names.
	all, twins []shardlease.Seen
	joined     map[string]time.Time
	vanished   vanished
}

// Reconcile begins or ends to follow a ring. ctx must last as long as the controller.
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

// follow follows the Leases of a ring in a namespace, or with "" no more.
func (o *Observer) follow(ctx context.Context, ring, namespace string, prefix v1alpha1.Prefix) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.rings[ring]
	if before != nil && before.namespace == namespace {
		return
	}
	now := &observed{namespace: namespace, prefix: prefix, followed: time.Now(), joined: map[string]time.Time{}, vanished: vanished{}}
	if before != nil { // the shards of the other namespace may still be at work
		now.vanished = before.vanished
		now.vanished.see(before.live(), nil, now.followed)
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
		err := w.Run(ctx, func(_ context.Context, at time.Time, all []shardlease.Seen) { o.look(ring, now, at, all) })
		if err != nil {
			logf.FromContext(ctx).Error(err, "Watching the Leases of a ring failed", "ring", ring)
		}
	}()
}

// since returns the time from which to count for a Lease that was not seen before. How old it is
// matters only for those of the first list: the shard may have died while no sharder ran.
func (o *Observer) since(of *observed, l *coordinationv1.Lease, at time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of.isSeen {
		return at
	}
	return o.Clock.Since(l, at)
}

// look notes what was seen of a ring at a time.
func (o *Observer) look(ring string, of *observed, at time.Time, all []shardlease.Seen) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rings[ring] != of {
		return // somebody else follows it by now
	}
	all, twins := Distinct(all)
	hasChanged := of.vanished.see(of.live(), of.own(all), at)
	hasChanged = hasChanged || !of.isSeen || !slices.EqualFunc(of.all, all, of.sameShard) || !slices.EqualFunc(of.twins, twins, of.sameShard)
	joined := map[string]time.Time{}
	for _, seen := range all {
		name := seen.Lease.Name
		if !stateOf(seen, of.prefix).Live() {
			continue
		}
		joined[name] = at
		if since, isIn := of.joined[name]; isIn {
			joined[name] = since
		}
	}
	of.isSeen, of.all, of.twins, of.joined = true, all, twins, joined
	if !hasChanged {
		return
	}
	for _, changed := range o.changed {
		changed(ring)
	}
}

// sameShard reports whether two sightings show the same of a shard. A renewal shows nothing new.
func (of *observed) sameShard(a, b shardlease.Seen) bool {
	state, handover := of.prefix.StateLabel(), of.prefix.HandoverLabel()
	return a.Lease.UID == b.Lease.UID && a.Lease.Name == b.Lease.Name && stateOf(a, of.prefix) == stateOf(b, of.prefix) &&
		a.Lease.Labels[state] == b.Lease.Labels[state] && a.Lease.Labels[handover] == b.Lease.Labels[handover]
}

// own returns the Leases but those that somebody of another name holds: their shards may not know it yet.
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

// Observation is what was last seen of a ring.
type Observation struct {
	// Leases are those that there are, one of each name, and Twins the others of these names.
	Leases, Twins []shardlease.Seen
	// Vanished are the shards whose Leases are gone although nobody has shown that the shards are, by
	// name.
	Vanished []string
	// Joined is since when each live shard was seen live.
	Joined map[string]time.Time
}

// Unlisted returns for how long the Leases of a ring in a namespace could not be listed, zero if they
// were or if nobody has begun to.
func (o *Observer) Unlisted(ring, namespace string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil || of.isSeen || of.namespace != namespace {
		return 0
	}
	return now.Sub(of.followed)
}

// Seen returns what was seen of a ring in a namespace. It reports false if its Leases were never listed.
// A shard in the table that has no Lease, and of which this process has not seen one, vanishes now.
func (o *Observer) Seen(ring, namespace string, inTable []string, now time.Time) (Observation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil || !of.isSeen || of.namespace != namespace {
		return Observation{}, false
	}
	of.vanished.miss(inTable, of.own(of.all), now)
	return Observation{Leases: of.all, Twins: of.twins, Vanished: of.vanished.names(), Joined: maps.Clone(of.joined)}, true
}

// Live returns the names of the shards of a ring whose Leases show that they live. The table may not have
// them yet.
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

// renewalMargin is the least time between a change and the next renewal of a shard's Lease, as the sharder
// sees both, until the shard is taken to be connected since. A renewal that was sent before may come later.
const renewalMargin = 2 * time.Second

// Unaware returns the shards of a ring that may not have heard of a change, as nothing shows that they were
// connected to the API server since. These are shards of protocol 2 that have not renewed their Leases since,
// and shards whose Leases vanished. They lose the right to act within twice the duration of their Leases.
// Others are not among them: what they hear cannot be known. It reports false while the Leases of the ring
// were not listed.
func (o *Observer) Unaware(ring string, changed time.Time) (names []string, isKnown bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.rings[ring]
	if of == nil || !of.isSeen {
		return nil, false
	}
	names = of.vanished.names()
	for _, s := range of.live() {
		isSilent := s.Since.Before(changed.Add(renewalMargin)) && s.State != shardlease.Uncertain
		if isSilent && s.Lease.Annotations[of.prefix.ProtocolAnnotation()] == v1alpha1.Protocol2 {
			names = append(names, s.Lease.Name)
		}
	}
	return names, true
}

// Tell makes the observer call changed, which must not block, after something has changed that the status
// of a ring depends on.
func (o *Observer) Tell(changed func(ring string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, changed)
}
