package cli

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// change is what a watch shows: before is nil for what is new, after for what is gone.
type change[O client.Object] struct {
	before, after O
	// isInitial says that it was there at the start.
	isInitial bool
}

// followed is what becomes of the changes of each kind; nil: they are not watched. Calls come one
// at a time.
type followed struct {
	transaction, record func(change[*corev1.ConfigMap])
	node                func(change[*metav1.PartialObjectMetadata])
	// synced is called once, when all that was there at the start was handled; nil: it is not.
	synced func()
	// health is told besides which watches work; nil: it is not.
	health *watchHealth
}

// follower watches, and has the changes handled one at a time: each informer calls from a goroutine of
// its own.
type follower struct {
	informers cache.Cache
	one       chan struct{} // has room for one who is at work
	handled   []toolscache.InformerSynced
}

// follow watches until ctx is cancelled, and tells people when it begins to. A watch that breaks is
// taken up again, and what was missed is shown then.
func (p *plugin) follow(ctx context.Context, c *cluster, do followed) error {
	watched := cache.Options{
		Scheme: scheme.Scheme,
		Mapper: c.mapper,
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			c.TransactionNamespace: {}, c.MetadataNamespace: {},
		}}},
		DefaultWatchErrorHandler: p.warnOnce(),
	}
	if do.health != nil {
		watched.NewInformer = do.health.newInformer
	}
	informers, err := cache.New(c.config, watched)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	f := &follower{informers: informers, one: make(chan struct{}, 1)}
	err = handle(ctx, f, &corev1.ConfigMap{}, func(ch change[*corev1.ConfigMap]) { do.configMap(c, ch) })
	if err == nil && do.node != nil {
		node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		err = handle(ctx, f, node, do.node)
	}
	if err != nil {
		return err
	}
	go func() {
		if f.waitForSync(ctx, do.synced) {
			_, _ = fmt.Fprintln(p.ErrOut, "Watching, until it is interrupted.")
		}
	}()
	if err := informers.Start(ctx); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	return nil
}

// configMap has the change of a transaction or a record handled. Other ConfigMaps do not matter.
func (do followed) configMap(c *cluster, ch change[*corev1.ConfigMap]) {
	cm := ch.after
	if cm == nil {
		cm = ch.before
	}
	switch {
	case cm.Namespace == c.TransactionNamespace && do.transaction != nil:
		handleOurs(ch, txn.Ours, do.transaction)
	case cm.Namespace == c.MetadataNamespace && do.record != nil:
		handleOurs(ch, record.Ours, do.record)
	}
}

// handleOurs has the change of a ConfigMap handled if it is ours. People can make another one ours,
// and one of ours another one: it is new then, or gone.
func handleOurs(ch change[*corev1.ConfigMap], isOurs func(*corev1.ConfigMap) bool, do func(change[*corev1.ConfigMap])) {
	if ch.before != nil && !isOurs(ch.before) {
		ch.before = nil
	}
	if ch.after != nil && !isOurs(ch.after) {
		ch.after = nil
	}
	if ch.before != nil || ch.after != nil {
		do(ch)
	}
}

// waitForSync waits until all that was there at the start was handled, and calls synced then, unless it
// is nil. It reports false if ctx is cancelled before.
func (f *follower) waitForSync(ctx context.Context, synced func()) bool {
	if !f.informers.WaitForCacheSync(ctx) || !toolscache.WaitForCacheSync(ctx.Done(), f.handled...) {
		return false
	}
	if synced != nil {
		f.one <- struct{}{}
		synced()
		<-f.one
	}
	return true
}

// handle has the changes of the objects of a kind handled, one at a time.
func handle[O client.Object](ctx context.Context, f *follower, kind O, do func(change[O])) error {
	informer, err := f.informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	call := func(before, after any, isInitial bool) {
		if tombstone, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
			before = tombstone.Obj
		}
		ch := change[O]{isInitial: isInitial}
		ch.before, _ = before.(O)
		ch.after, _ = after.(O)
		f.one <- struct{}{}
		defer func() { <-f.one }()
		do(ch)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, isInitial bool) { call(nil, obj, isInitial) },
		UpdateFunc: func(before, after any) { call(before, after, false) },
		DeleteFunc: func(obj any) { call(obj, nil, false) },
	})
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	f.handled = append(f.handled, registration.HasSynced)
	return nil
}

// warnOnce returns what tells people of an error, and of the next one only when it is another.
func (p *plugin) warnOnce() toolscache.WatchErrorHandlerWithContext {
	var mu sync.Mutex // each informer calls from a goroutine of its own
	last := ""
	return func(_ context.Context, _ *toolscache.Reflector, err error) {
		mu.Lock()
		defer mu.Unlock()
		if text := err.Error(); text != last {
			last = text
			_, _ = fmt.Fprintf(p.ErrOut, "The watch broke, and is tried again: %v\n", p.Explain(err))
		}
	}
}
