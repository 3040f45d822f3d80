package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// drainPriority puts hand-overs ahead of ordinary requests: behind a long queue, a hand-over could
// exceed the drain timeout.
const drainPriority = 1000

// Builder builds a controller that reconciles only the objects of this shard. Its methods mirror
// those of controller-runtime's builder.Builder. A Builder is not safe for concurrent use.
type Builder struct {
	shard   *Shard
	mgr     manager.Manager
	inner   *builder.Builder
	options controller.Options

	main client.Object
	// metadataOnly is set if the cache holds only the metadata of the main objects.
	metadataOnly bool
	// others holds the kinds passed to Owns and Watches.
	others []cached
}

// cached is a kind that a controller watches.
type cached struct {
	object       client.Object
	metadataOnly bool
}

// ControllerManagedBy returns a builder for a sharded controller. The manager must come from
// [Shard.NewManager].
//
// For a controller whose objects are not sharded, use builder.ControllerManagedBy. Its kind must
// not be one of the shard's Kinds: the caches hold only part of those objects, and nothing would
// keep two shards from working on the same one.
func (s *Shard) ControllerManagedBy(mgr manager.Manager) *Builder {
	return &Builder{shard: s, mgr: mgr, inner: builder.ControllerManagedBy(mgr)}
}

// For sets the kind of the main objects, which must be one of the shard's Kinds. Predicates apply
// to all events except the sharder's requests to move an object.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	b.main = object
	for _, opt := range opts {
		b.metadataOnly = b.metadataOnly || opt == builder.ForOption(builder.OnlyMetadata)
	}
	b.inner.For(object, opts...)
	return b
}

// Owns adds a kind of children. The kind must be one of the shard's Kinds if and only if it is a
// controlled resource of the ring.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	other := cached{object: object}
	for _, opt := range opts {
		other.metadataOnly = other.metadataOnly || opt == builder.OwnsOption(builder.OnlyMetadata)
	}
	b.others = append(b.others, other)
	b.inner.Owns(object, opts...)
	return b
}

// Watches adds a kind whose events are mapped to main objects. Requests for objects of other shards
// are ignored.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	other := cached{object: object}
	for _, opt := range opts {
		other.metadataOnly = other.metadataOnly || opt == builder.WatchesOption(builder.OnlyMetadata)
	}
	b.others = append(b.others, other)
	b.inner.Watches(object, h, opts...)
	return b
}

// WatchesMetadata is Watches with builder.OnlyMetadata.
func (b *Builder) WatchesMetadata(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	return b.Watches(object, h, append(opts, builder.OnlyMetadata)...)
}

// WatchesRawSource adds a source of requests.
func (b *Builder) WatchesRawSource(src source.Source) *Builder {
	b.inner.WatchesRawSource(src)
	return b
}

// WithEventFilter adds a predicate for all events except the sharder's requests to move an object.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.inner.WithEventFilter(p)
	return b
}

// WithOptions sets the options of the controller. NeedLeaderElection is ignored: a sharded
// controller runs while the shard holds its Lease.
func (b *Builder) WithOptions(o controller.Options) *Builder {
	b.options = o
	return b
}

// WithLogConstructor sets the function that constructs the logger of a request.
func (b *Builder) WithLogConstructor(construct func(*reconcile.Request) logr.Logger) *Builder {
	b.options.LogConstructor = construct
	return b
}

// Named sets the name of the controller.
func (b *Builder) Named(name string) *Builder {
	b.inner.Named(name)
	return b
}

// Complete builds the controller and adds it to the manager. See [Builder.Build].
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build adds the controller to the manager and returns it. It returns an error if the kind passed
// to For is missing or is not one of the shard's Kinds, or if a reconciler is set both here and by
// WithOptions.
func (b *Builder) Build(r reconcile.Reconciler) (controller.Controller, error) {
	switch {
	case r != nil && b.options.Reconciler != nil:
		return nil, errors.New("two reconcilers are set: one by WithOptions and one by Build or Complete")
	case r == nil:
		r = b.options.Reconciler
	}
	b.options.Reconciler = nil
	if r != nil && !b.shard.options.Standalone {
		var err error
		if r, err = b.sharded(r); err != nil {
			return nil, err
		}
	}
	return b.inner.WithOptions(b.options).Build(r) //nolint:wrapcheck // the error needs no context
}

// sharded wraps a reconciler so that it answers the sharder, and adds a source for the sharder's
// requests.
func (b *Builder) sharded(r reconcile.Reconciler) (reconcile.Reconciler, error) {
	if b.main == nil {
		return nil, errors.New("a sharded controller requires For, which sets the kind of its main objects")
	}
	main, err := b.project(cached{b.main, b.metadataOnly})
	if err != nil {
		return nil, err
	}
	wrapped, err := b.shard.Reconciler(main, r)
	if err != nil {
		return nil, err
	}
	for _, other := range b.others {
		object, err := b.project(other)
		if err != nil {
			return nil, err
		}
		b.shard.recordType(object)
	}
	b.options.NeedLeaderElection = new(false)
	b.inner.WatchesRawSource(source.Kind(b.mgr.GetCache(), main, handoverHandler(), b.shard.handovers()))
	return wrapped, nil
}

// project returns an object of the type under which a kind is cached.
func (b *Builder) project(c cached) (client.Object, error) {
	if !c.metadataOnly {
		return c.object, nil
	}
	kind, err := apiutil.GVKForObject(c.object, b.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", c.object, err)
	}
	return metadataOf(kind), nil
}

// handovers returns a predicate for events that every controller must receive, regardless of its
// own predicates: requests to release an object, and deletions.
func (s *Shard) handovers() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return s.isDraining(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return s.isDraining(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// handoverHandler enqueues hand-overs ahead of all other requests.
func handoverHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue, o client.Object, priority int) {
		req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
		if q, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req)
			return
		}
		q.Add(req)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, e.Object, drainPriority) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectNew, drainPriority) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object, 0) },
	}
}
