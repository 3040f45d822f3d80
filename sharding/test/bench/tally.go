package main

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// tally counts the objects of each shard with a watch. Repeated lists would slow down the measured
// moves.
type tally struct {
	mu     sync.Mutex
	shards map[string]int
	drains int
}

// follow counts until ctx ends. It returns once the existing objects are counted.
func (t *tally) follow(ctx context.Context, objects metadata.ResourceInterface) error {
	t.shards = map[string]int{}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return objects.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { t.change(nil, object) },
			UpdateFunc: t.change,
			DeleteFunc: func(object any) { t.change(object, nil) },
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the watch of the objects has not begun")
	}
	return nil
}

// change counts a change of an object between two versions, which can be nil.
func (t *tally) change(before, now any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(before, -1)
	t.add(now, 1)
}

func (t *tally) add(object any, by int) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	t.shards[m.Labels[prefix.ShardLabel(ringName)]] += by
	if m.Labels[prefix.DrainLabel(ringName)] != "" {
		t.drains += by
	}
}

// count returns the number of objects of a shard.
func (t *tally) count(shard string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shards[shard]
}

// draining returns the number of objects in a hand-over.
func (t *tally) draining() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drains
}
