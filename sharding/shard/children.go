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
	// childrenPeriod is the interval at which the caches are checked for the children of an object.
	childrenPeriod = 50 * time.Millisecond
	// childrenTimeout bounds the wait for children: a kind may have no cache that will ever hold
	// them.
	childrenTimeout = 30 * time.Second
	// listAfter is the delay before the children are listed from the API server: the child with the
	// recorded resourceVersion may have been deleted before a cache was filled.
	listAfter = 2 * time.Second
)

// caches records the caches that hold objects of the shard's kinds. It is safe for concurrent use.
type caches struct {
	mu     sync.Mutex
	byKind map[schema.GroupKind]map[reflect.Type]*view
}

// view is one cache of a kind. Each Go type of a kind has a cache of its own.
type view struct {
	object client.Object
	// mu guards progress, which is nil until the first call of listen.
	mu       sync.Mutex
	progress *progress
}

// add records that objects of a kind are cached as the type of the given object.
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

// listen returns the progress of a cache. The first call adds an event handler to its informer.
func (v *view) listen(informer cache.Informer) (*progress, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.progress != nil {
		return v.progress, nil
	}
	p := &progress{versions: map[string]string{}}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: p.observe, UpdateFunc: func(_, object any) { p.observe(object) }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return nil, fmt.Errorf("adding an event handler to a cache: %w", err)
	}
	v.progress = p
	return p, nil
}

// progress is the latest resourceVersion that a cache has observed in each namespace. Namespaces
// are tracked separately because each can have an informer of its own.
type progress struct {
	mu       sync.Mutex
	versions map[string]string
}

func (p *progress) observe(object any) {
	m, ok := object.(client.Object)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.versions[m.GetNamespace()]; last == "" || isLater(m.GetResourceVersion(), last) {
		p.versions[m.GetNamespace()] = m.GetResourceVersion()
	}
}

func (p *progress) at(namespace string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions[namespace]
}

// missingChildren describes which children of an object the caches lack, given the children
// annotation that the sharder wrote. It returns "" if nothing is missing. It ignores kinds that
// this shard does not cache, and an annotation that it cannot parse because a user has edited it.
func (r *reconciler) missingChildren(ctx context.Context, main client.Object, annotation string, waited time.Duration) string {
	var versions map[string]string
	if json.Unmarshal([]byte(annotation), &versions) != nil {
		return ""
	}
	for resource, version := range versions {
		kind, err := r.mapper.KindFor(schema.ParseGroupResource(resource).WithVersion(""))
		if err != nil {
			continue // the resource is no longer served
		}
		for _, v := range r.shard.caches.of(kind.GroupKind()) {
			if missing := r.missingIn(ctx, v, main, version, waited); missing != "" {
				return resource + ": " + missing
			}
		}
	}
	return ""
}

// missingIn describes which children of an object one cache lacks, or returns "".
func (r *reconciler) missingIn(ctx context.Context, v *view, main client.Object, version string, waited time.Duration) string {
	informer, err := r.informers.GetInformer(ctx, v.object, cache.BlockUntilSynced(false))
	if err != nil {
		return err.Error()
	}
	if !informer.HasSynced() {
		return "the cache is not synced"
	}
	var observed string
	if one, ok := informer.(toolscache.SharedIndexInformer); ok {
		observed = one.GetStore().LastStoreSyncResourceVersion()
	} else { // one informer per namespace: they do not report a resourceVersion
		p, err := v.listen(informer)
		if err != nil {
			return err.Error()
		}
		if observed = p.at(main.GetNamespace()); main.GetNamespace() == "" || waited > listAfter {
			return r.missingByName(ctx, v.object, main)
		}
	}
	if observed != version && !isLater(observed, version) {
		return fmt.Sprintf("the cache is at %q, the children are at %q", observed, version)
	}
	return ""
}

// missingByName compares the children in a cache whose resourceVersion is unknown with the children
// that the API server lists.
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

// missingChild describes how the cached copy of an object is behind if the object is a child of
// main, and returns "" otherwise.
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
