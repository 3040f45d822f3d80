package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/api/sharding/v1alpha1"
	"nodekeeper.dev/internal/ui"
)

// feed feeds the page by watches until ctx ends. Users may lack the rights for the replicas or the
// rings: then the page says so, and shows the rest.
func (p *plugin) feed(ctx context.Context, c *cluster, feed *ui.Feed) error {
	problem := func(what string) func(error) {
		return func(err error) { feed.Problem(what, err, time.Now()) }
	}
	replicasKnown := make(chan struct{}) // or known to stay unknown
	known := sync.OnceFunc(func() { close(replicasKnown) })
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		failed := func(err error) { known(); problem(ui.WatchedReplicas)(withAdvice(err)) }
		options := cache.Options{
			Scheme: scheme.Scheme, Mapper: c.mapper, DefaultNamespaces: map[string]cache.Config{c.MembershipNamespace: {}},
		}
		return followKind(ctx, c, options, failed, known, &coordinationv1.Lease{}, func(ch change[*coordinationv1.Lease]) { feed.Lease(ch.before, ch.after) })
	})
	group.Go(func() error {
		failed := func(err error) {
			if !apierrors.IsNotFound(err) { // else there is no sharder
				problem(ui.WatchedRings)(err)
			}
		}
		rings := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(rings); err != nil {
			return fmt.Errorf("registering types: %w", err)
		}
		options := cache.Options{Scheme: rings, Mapper: newRingMapper()}
		return followKind(ctx, c, options, failed, nil, &v1alpha1.ClusterRing{}, func(ch change[*v1alpha1.ClusterRing]) { feed.Ring(ch.before, ch.after) })
	})
	group.Go(func() error {
		return p.follow(ctx, c, followed{
			node:        func(ch change[*metav1.PartialObjectMetadata]) { feed.Node(ch.before, ch.after, ch.isInitial) },
			record:      func(ch change[*corev1.ConfigMap]) { feed.Record(ch.before, ch.after, ch.isInitial) },
			transaction: func(ch change[*corev1.ConfigMap]) { feed.Transaction(ch.before, ch.after, ch.isInitial) },
			failed:      problem(ui.WatchedNodes),
			synced: func() {
				select {
				case <-replicasKnown:
				case <-ctx.Done():
				}
				feed.Synced(time.Now())
			},
		})
	})
	return group.Wait() //nolint:wrapcheck // each says what failed
}

// followKind watches the objects of a kind until ctx ends. It calls synced when all that were there at the
// start were handled, and failed whenever the watch breaks, unless they are nil.
func followKind[O client.Object](ctx context.Context, c *cluster, options cache.Options, failed func(error), synced func(), kind O, do func(change[O])) error {
	options.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) { failed(err) }
	informers, err := cache.New(c.config, options)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	f := &follower{informers: informers, one: make(chan struct{}, 1)}
	if err := handle(ctx, f, kind, do); err != nil {
		return err
	}
	if synced != nil {
		go f.waitForSync(ctx, synced)
	}
	if err := informers.Start(ctx); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	return nil
}
