package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// childrenPeriod is how often to look whether the caches have the children of an object.
	childrenPeriod = 50 * time.Millisecond
	// childrenTimeout bounds that: a kind may have no cache that ever shows them.
	childrenTimeout = 30 * time.Second
)

// children knows the caches that hold the children of a kind. It is safe for concurrent use.
type children struct {
	// caches are objects of the kinds, as the caches have them, by their resources.
	caches    map[string][]client.Object
	informers cache.Informers
}

// resourceName returns the name of a resource as the sharder's notes have it.
func resourceName(r schema.GroupResource) string { return r.String() }

// missing returns what the caches have not seen yet of what a note of the sharder names, "" if nothing is
// missing. Kinds that this shard does not cache do not matter, and a note that cannot be read names
// none: somebody has edited it.
func (c *children) missing(ctx context.Context, note string) string {
	var versions map[string]string
	if json.Unmarshal([]byte(note), &versions) != nil {
		return ""
	}
	for resource, version := range versions {
		for _, object := range c.caches[resource] {
			informer, err := c.informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Sprintf("%s: %v", resource, err)
			}
			if seen := lastSeen(informer); !reaches(seen, version) {
				return fmt.Sprintf("%s at %s, the cache is at %s", resource, version, seen)
			}
		}
	}
	return ""
}

// lastSeen returns the resourceVersion up to which a cache holds what its watch has shown.
func lastSeen(informer cache.Informer) string {
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok || !shared.HasSynced() {
		return "" // TODO: of several namespaces
	}
	if version := shared.GetStore().LastStoreSyncResourceVersion(); version != "" {
		return version
	}
	return shared.LastSyncResourceVersion() // client-go's gate AtomicFIFO is off: the store may be a moment behind
}

// reaches reports whether a resourceVersion is a given one or a later one.
func reaches(seen, version string) bool {
	order, err := resourceversion.CompareResourceVersion(seen, version)
	return err == nil && order >= 0
}
