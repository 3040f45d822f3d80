package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// childrenPeriod is the time between two checks whether the caches have the children of an object.
	childrenPeriod = 50 * time.Millisecond
	// childrenTimeout bounds the wait for children: a kind may have no cache that ever shows them.
	childrenTimeout = 30 * time.Second
	// listAfter is how long to wait before the children are listed from the API server: the child that
	// the note is about may have been deleted before a cache was filled.
	listAfter = 2 * time.Second
)

// caches knows the caches that hold objects of the shard's kinds. It is safe for concurrent use.
type caches struct {
	mu     sync.Mutex
	byKind map[schema.GroupKind]map[reflect.Type]*view
}

// view is one cache of a kind: each type has its own.
type view struct {
	object client.Object
	// heard is told of all events once begin was done.
	begin sync.Mutex
	heard *progress
}

// add notes that objects of a kind are cached as the type of this object.
func (c *caches) add(kind schema.GroupKind, object client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKind == nil {
		c.byKind = map[schema.GroupKind]map[reflect.Type]*view{}
	}
	if c.byKind[kind] == nil {
		c.byKind[kind] = map[reflect.Type]*view{}
	}
	if t := reflect.TypeOf(object); c.byKind[kind][t] == nil {
		c.byKind[kind][t] = &view{object: object}
	}
}

// of returns the caches of a kind.
func (c *caches) of(kind schema.GroupKind) []*view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.byKind[kind]))
}

// listen returns the progress of a cache.
func (v *view) listen(informer cache.Informer) (*progress, error) {
	v.begin.Lock()
	defer v.begin.Unlock()
	if v.heard != nil {
		return v.heard, nil
	}
	heard := &progress{seen: map[string]string{}}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: heard.see, UpdateFunc: func(_, object any) { heard.see(object) }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return nil, fmt.Errorf("listening to a cache: %w", err)
	}
	v.heard = heard
	return heard, nil
}

// progress is the last resourceVersion that a cache has shown, by namespace: what follows from it for
// one namespace does not for another, as each can have an informer of its own.
type progress struct {
	mu   sync.Mutex
	seen map[string]string
}

func (p *progress) see(object any) {
	m, ok := object.(client.Object)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.seen[m.GetNamespace()]; last == "" || isLater(m.GetResourceVersion(), last) {
		p.seen[m.GetNamespace()] = m.GetResourceVersion()
	}
}

func (p *progress) at(namespace string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[namespace]
}

// missingChildren returns what the caches lack of the children of an object, which a note of the sharder
// names, or "" if they lack nothing. It ignores kinds that this shard does not cache, and a note that
// cannot be read: somebody has edited it.
func (r *reconciler) missingChildren(ctx context.Context, main client.Object, note string, waited time.Duration) string {
	var versions map[string]string
	if json.Unmarshal([]byte(note), &versions) != nil {
		return ""
	}
	for resource, version := range versions {
		kind, err := r.mapper.KindFor(schema.ParseGroupResource(resource).WithVersion(""))
		if err != nil {
			continue // it is no longer served
		}
		for _, v := range r.shard.caches.of(kind.GroupKind()) {
			if missing := r.missingIn(ctx, v, main, version, waited); missing != "" {
				return resource + ": " + missing
			}
		}
	}
	return ""
}

// missingIn returns what one cache lacks of the children of an object.
func (r *reconciler) missingIn(ctx context.Context, v *view, main client.Object, version string, waited time.Duration) string {
	informer, err := r.informers.GetInformer(ctx, v.object, cache.BlockUntilSynced(false))
	if err != nil {
		return err.Error()
	}
	if !informer.HasSynced() {
		return "the cache is not synced"
	}
	var seen string
	if one, ok := informer.(toolscache.SharedIndexInformer); ok {
		seen = one.GetStore().LastStoreSyncResourceVersion()
	} else { // several, which do not say how far they are
		heard, err := v.listen(informer)
		if err != nil {
			return err.Error()
		}
		if seen = heard.at(main.GetNamespace()); main.GetNamespace() == "" || waited > listAfter {
			return r.missingByName(ctx, v.object, main)
		}
	}
	if seen != version && !isLater(seen, version) {
		return fmt.Sprintf("the cache is at %q, the children at %q", seen, version)
	}
	return ""
}

// missingByName compares a cache that does not say up to which version it is with the API server.
func (r *reconciler) missingByName(ctx context.Context, object, main client.Object) string {
	kind, err := r.live.GroupVersionKindFor(object)
	if err != nil {
		return err.Error()
	}
	scopes := []string{main.GetNamespace()}
	if scopes[0] == "" {
		scopes = r.shard.scopes(kind.GroupKind())
	}
	for _, namespace := range scopes {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err = r.live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{r.shardLabel(): r.shard.options.Name})
		if err != nil {
			return err.Error()
		}
		for _, child := range list.Items {
			if missing := r.missingChild(ctx, object, main, &child); missing != "" {
				return missing
			}
		}
	}
	return ""
}

// missingChild returns what a cache lacks of an object if that is a child.
func (r *reconciler) missingChild(ctx context.Context, object, main client.Object, child *metav1.PartialObjectMetadata) string {
	if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != main.GetUID() {
		return ""
	}
	cached := emptyOf(object)
	if err := r.cache.Get(ctx, client.ObjectKeyFromObject(child), cached); err != nil {
		return fmt.Sprintf("%s: %v", child.Name, err)
	}
	if isLater(child.ResourceVersion, cached.GetResourceVersion()) {
		return child.Name + " is newer than in the cache"
	}
	return ""
}
