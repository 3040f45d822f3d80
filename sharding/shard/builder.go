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

// drainPriority puts hand-overs before work: behind a long queue, a hand-over would exceed the drain
// timeout.
const drainPriority = 1000

// Builder builds a controller that works on the objects of this shard only. Its methods are those of
// controller-runtime's builder.Builder. It is not safe for concurrent use.
type Builder struct {
	shard   *Shard
	mgr     manager.Manager
	inner   *builder.Builder
	options controller.Options

	main client.Object
	// isMetadata says that only the metadata of the main objects is cached.
	isMetadata bool
	// others are the kinds of Owns and Watches.
	others []cached
}

// cached is a kind that a controller watches.
type cached struct {
	object     client.Object
	isMetadata bool
}

// ControllerManagedBy returns a builder of a controller that the manager of [Shard.NewManager] runs. Use
// builder.ControllerManagedBy for a controller whose objects are not shared out. It must not be one of
// the shard's Kinds: the caches have only some of these objects, and nobody keeps two shards from
// working on one.
func (s *Shard) ControllerManagedBy(mgr manager.Manager) *Builder {
	return &Builder{shard: s, mgr: mgr, inner: builder.ControllerManagedBy(mgr)}
}

// For sets the kind of the main objects, which must be one of the shard's Kinds. Predicates never hide
// that the sharder wants to move an object.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	b.main = object
	for _, opt := range opts {
		b.isMetadata = b.isMetadata || opt == builder.ForOption(builder.OnlyMetadata)
	}
	b.inner.For(object, opts...)
	return b
}

// Owns adds a kind of children. Make it one of the shard's Kinds if it is a controlled resource of the
// ring, and only then.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	other := cached{object: object}
	for _, opt := range opts {
		other.isMetadata = other.isMetadata || opt == builder.OwnsOption(builder.OnlyMetadata)
	}
	b.others = append(b.others, other)
	b.inner.Owns(object, opts...)
	return b
}

// Watches adds a kind whose events lead to main objects. Those of other shards are ignored.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	other := cached{object: object}
	for _, opt := range opts {
		other.isMetadata = other.isMetadata || opt == builder.WatchesOption(builder.OnlyMetadata)
	}
	b.others = append(b.others, other)
	b.inner.Watches(object, h, opts...)
	return b
}

// WatchesMetadata is Watches for metadata alone.
func (b *Builder) WatchesMetadata(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	return b.Watches(object, h, append(opts, builder.OnlyMetadata)...)
}

// WatchesRawSource adds any source of requests.
func (b *Builder) WatchesRawSource(src source.Source) *Builder {
	b.inner.WatchesRawSource(src)
	return b
}

// WithEventFilter adds a predicate of all events but those by which the sharder moves objects.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.inner.WithEventFilter(p)
	return b
}

// WithOptions sets the options of the controller. NeedLeaderElection is ignored: a sharded controller
// runs while the shard holds its Lease.
func (b *Builder) WithOptions(o controller.Options) *Builder {
	b.options = o
	return b
}

// WithLogConstructor sets how requests are logged.
func (b *Builder) WithLogConstructor(construct func(*reconcile.Request) logr.Logger) *Builder {
	b.options.LogConstructor = construct
	return b
}

// Named sets the name of the controller.
func (b *Builder) Named(name string) *Builder {
	b.inner.Named(name)
	return b
}

// Complete adds the controller to the manager.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build adds the controller to the manager, and returns it.
func (b *Builder) Build(r reconcile.Reconciler) (controller.Controller, error) {
	switch {
	case r != nil && b.options.Reconciler != nil:
		return nil, errors.New("two reconcilers are set: one by WithOptions, and one by Build or Complete")
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
	return b.inner.WithOptions(b.options).Build(r) //nolint:wrapcheck // nothing is added to it
}

// sharded returns the reconciler that answers the sharder, and makes the controller hear it.
func (b *Builder) sharded(r reconcile.Reconciler) (reconcile.Reconciler, error) {
	if b.main == nil {
		return nil, errors.New("a sharded controller needs For, which names the kind of its main objects")
	}
	main, err := b.project(cached{b.main, b.isMetadata})
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
		b.shard.note(object)
	}
	b.options.NeedLeaderElection = new(false)
	b.inner.WatchesRawSource(source.Kind(b.mgr.GetCache(), main, handoverHandler(), b.shard.handovers()))
	return wrapped, nil
}

// project returns an object of the type by which a kind is cached.
func (b *Builder) project(c cached) (client.Object, error) {
	if !c.isMetadata {
		return c.object, nil
	}
	kind, err := apiutil.GVKForObject(c.object, b.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", c.object, err)
	}
	return metadataOf(kind), nil
}

// handovers passes what every controller must hear, whatever its own predicates say: that an object must
// be given away, and that one is gone.
func (s *Shard) handovers() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return s.isDraining(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return s.isDraining(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// handoverHandler enqueues hand-overs before everything else.
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
