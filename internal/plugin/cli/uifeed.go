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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/plugin/ui"
)

// feed feeds the page by watches until ctx ends. A user may lack the rights to watch the
// replicas: then the page reports that, and shows the rest.
func (p *plugin) feed(ctx context.Context, c *cluster, feed *ui.Feed) error {
	replicasRead := make(chan struct{}) // or failed to read
	read := sync.OnceFunc(func() { close(replicasRead) })
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.feedReplicas(ctx, c, feed, read) })
	group.Go(func() error {
		return p.follow(ctx, c, followed{
			node:        func(ch change[*metav1.PartialObjectMetadata]) { feed.Node(ch.before, ch.after, ch.isInitial) },
			record:      func(ch change[*corev1.ConfigMap]) { feed.Record(ch.before, ch.after, ch.isInitial) },
			transaction: func(ch change[*corev1.ConfigMap]) { feed.Transaction(ch.before, ch.after, ch.isInitial) },
			health: &watchHealth{
				onError:   func(err error) { feed.Problem(ui.WatchedNodes, p.Explain(err)) },
				onSuccess: func() { feed.Solved(ui.WatchedNodes, time.Now()) },
			},
			synced: func() {
				select {
				case <-replicasRead:
				case <-ctx.Done():
				}
				feed.Synced(time.Now())
			},
		})
	})
	return group.Wait() //nolint:wrapcheck // each names what failed
}

// feedReplicas feeds the replicas, and calls read after the first read succeeded or failed.
func (p *plugin) feedReplicas(ctx context.Context, c *cluster, feed *ui.Feed, read func()) error {
	return followKind(ctx, c, followedKind[*coordinationv1.Lease]{
		kind: &coordinationv1.Lease{},
		options: cache.Options{
			Scheme: scheme.Scheme, Mapper: c.mapper, DefaultNamespaces: map[string]cache.Config{c.MembershipNamespace: {}},
		},
		do:     func(ch change[*coordinationv1.Lease]) { feed.Lease(ch.before, ch.after) },
		synced: read,
		health: &watchHealth{
			onError:   func(err error) { feed.Problem(ui.WatchedReplicas, p.Explain(err)); read() },
			onSuccess: func() { feed.Solved(ui.WatchedReplicas, time.Now()) },
		},
	})
}

// followedKind is a kind to watch. Synced and health are as in [followed], but health must not be
// nil.
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
	watched.options.DefaultWatchErrorHandler = ignoreWatchError
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
