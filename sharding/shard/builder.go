package shard

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Builder builds a controller that works on the objects of this shard only. Its methods are those of
// controller-runtime's builder.Builder. It is not safe for concurrent use.
type Builder struct {
	shard   *Shard
	mgr     manager.Manager
	inner   *builder.Builder
	options controller.Options

	main         client.Object
	onlyMetadata bool
}

// ControllerManagedBy returns a builder of a controller that a manager of [Shard.NewManager] runs. Use
// builder.ControllerManagedBy for a controller whose objects are not shared out: it works on all
// objects of its kind, unless the kind is one of the shard's Kinds.
func (s *Shard) ControllerManagedBy(mgr manager.Manager) *Builder {
	return &Builder{shard: s, mgr: mgr, inner: builder.ControllerManagedBy(mgr)}
}

// For sets the kind of the main objects, which must be one of the shard's Kinds. Predicates never hide
// that the sharder wants to move an object.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	b.main = object
	for _, opt := range opts {
		if opt == builder.ForOption(builder.OnlyMetadata) {
			b.onlyMetadata = true
		}
	}
	b.inner.For(object, opts...)
	return b
}

// Owns adds a kind of children. Make it one of the shard's Kinds if it is a controlled resource of the
// ring.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	b.inner.Owns(object, opts...)
	return b
}

// Watches adds a kind whose events lead to main objects. Those of other shards are ignored.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	b.inner.Watches(object, h, opts...)
	return b
}

// WatchesMetadata is Watches for metadata alone.
func (b *Builder) WatchesMetadata(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	b.inner.WatchesMetadata(object, h, opts...)
	return b
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
	b.inner.WithLogConstructor(construct)
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
	if b.options.Reconciler == nil {
		b.options.Reconciler = r
	}
	if b.shard.options.Standalone {
		return b.inner.WithOptions(b.options).Build(nilIfSet(b.options.Reconciler))
	}
	return b.build()
}
