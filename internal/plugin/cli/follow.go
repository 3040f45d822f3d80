package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// change is a change of an object: before is nil if it is new, after if it was removed.
type change[O client.Object] struct {
	before, after O
	// isInitial reports whether the object is in the initial list.
	isInitial bool
}

// followed has the handlers of changes, by kind. Kinds without a handler are not watched. Calls are
// sequential.
type followed struct {
	transaction, record func(change[*corev1.ConfigMap])
	node                func(change[*metav1.PartialObjectMetadata])
	// foreign reports whether record also handles ConfigMaps of other programs, which may have the
	// name of a node.
	foreign bool
	// synced, if not nil, is called once after all initial objects were handled.
	synced func()
	// health receives the results of all watches. If it is nil, the user sees when they break and
	// recover.
	health *watchHealth
}

// follower calls handlers sequentially, although each informer has a goroutine of its own.
type follower struct {
	informers cache.Cache
	one       chan struct{} // a semaphore of one handler
	handled   []toolscache.InformerSynced
}

// follow watches until ctx is canceled, and reports to the user when it begins. It resumes broken
// watches, and then handles the changes that it missed.
func (p *plugin) follow(ctx context.Context, c *cluster, do followed) error {
	if do.health == nil {
		do.health = p.shownHealth()
	}
	watched := cache.Options{
		Scheme: scheme.Scheme,
		Mapper: c.mapper,
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			c.TransactionNamespace: {}, c.MetadataNamespace: {},
		}}},
		NewInformer:              do.health.newInformer,
		DefaultWatchErrorHandler: ignoreWatchError,
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

// configMap handles the change of a transaction or a record, and ignores other ConfigMaps
// unless they may have the name of a node.
func (do followed) configMap(c *cluster, ch change[*corev1.ConfigMap]) {
	cm := ch.after
	if cm == nil {
		cm = ch.before
	}
	switch {
	case cm.Namespace == c.TransactionNamespace && do.transaction != nil:
		handleOurs(ch, txn.Ours, do.transaction)
	case cm.Namespace == c.MetadataNamespace && do.record != nil:
		isOurs := record.Ours
		if do.foreign {
			isOurs = func(cm *corev1.ConfigMap) bool { return cm.Name != record.RootCAName }
		}
		handleOurs(ch, isOurs, do.record)
	}
}

// handleOurs handles the change of a ConfigMap of nodekeeper. A change of its labels can make it
// nodekeeper's or not, which counts as a creation or a removal.
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

// waitForSync waits until all initial objects were handled, and then calls synced if it is not nil.
// It returns false if ctx is canceled first.
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

// handle registers the handler of a kind, and makes calls of all handlers sequential.
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
