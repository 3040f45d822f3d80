package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/plugin/ui"
)

// feed feeds the page by watches until ctx ends. A user may lack the rights to watch the
// replicas: then the page reports that, and shows the rest.
func (p *plugin) feed(ctx context.Context, c *cluster, feed *ui.Feed) error {
	replicasKnown := make(chan struct{}) // or known to stay unknown
	known := sync.OnceFunc(func() { close(replicasKnown) })
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.feedReplicas(ctx, c, feed, known) })
	group.Go(func() error {
		return p.follow(ctx, c, followed{
			node:        func(ch change[*metav1.PartialObjectMetadata]) { feed.Node(ch.before, ch.after, ch.isInitial) },
			record:      func(ch change[*corev1.ConfigMap]) { feed.Record(ch.before, ch.after, ch.isInitial) },
			transaction: func(ch change[*corev1.ConfigMap]) { feed.Transaction(ch.before, ch.after, ch.isInitial) },
			health: &watchHealth{
				failed: func(err error) { feed.Problem(ui.WatchedNodes, p.Explain(err)) },
				works:  func() { feed.Solved(ui.WatchedNodes, time.Now()) },
			},
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

// feedReplicas calls known when the replicas are known, or known to stay unknown for now.
func (p *plugin) feedReplicas(ctx context.Context, c *cluster, feed *ui.Feed, known func()) error {
	return followKind(ctx, c, followedKind[*coordinationv1.Lease]{
		kind: &coordinationv1.Lease{},
		options: cache.Options{
			Scheme: scheme.Scheme, Mapper: c.mapper, DefaultNamespaces: map[string]cache.Config{c.MembershipNamespace: {}},
		},
		do:     func(ch change[*coordinationv1.Lease]) { feed.Lease(ch.before, ch.after) },
		synced: known,
		health: &watchHealth{
			failed: func(err error) { feed.Problem(ui.WatchedReplicas, p.Explain(err)); known() },
			works:  func() { feed.Solved(ui.WatchedReplicas, time.Now()) },
		},
	})
}

// followedKind is what is watched of a kind, and what becomes of it: synced and health are as in
// [followed], but health is not nil.
type followedKind[O client.Object] struct {
	kind    O
	options cache.Options
	do      func(change[O])
	synced  func()
	health  *watchHealth
}

// followKind watches the objects of a kind until ctx ends.
func followKind[O client.Object](ctx context.Context, c *cluster, watched followedKind[O]) error {
	watched.options.NewInformer = watched.health.newInformer
	watched.options.DefaultWatchErrorHandler = func(context.Context, *toolscache.Reflector, error) {} // which writes to a log
	informers, err := cache.New(c.config, watched.options)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	f := &follower{informers: informers, one: make(chan struct{}, 1)}
	if err := handle(ctx, f, watched.kind, watched.do); err != nil {
		return err
	}
	go f.waitForSync(ctx, watched.synced)
	if err := informers.Start(ctx); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	return nil
}
