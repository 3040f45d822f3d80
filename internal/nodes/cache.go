package nodes

import (
	"context"
	"errors"
	"fmt"
	"iter"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/nodeview"
)

// Informer is an informer whose transform makes each Node a [nodeview.Node]. Its handlers get the
// events in order for each Node, see [Delivered], and share the Nodes with its store.
type Informer interface {
	cache.Informer
	GetStore() toolscache.Store
}

// Cache has the Nodes that an informer has delivered. It is safe for concurrent use.
type Cache struct{ Informer }

// CacheOf returns the Nodes of a cache whose transform makes each Node a [nodeview.Node].
func CacheOf(ctx context.Context, all cache.Cache) (Cache, error) {
	informer, err := all.GetInformer(ctx, Metadata(""), cache.BlockUntilSynced(false))
	if err != nil {
		return Cache{}, fmt.Errorf("watching nodes: %w", err)
	}
	stored, ok := informer.(Informer)
	if !ok {
		return Cache{}, fmt.Errorf("watching nodes: %T has no store", informer)
	}
	return Cache{stored}, nil
}

// ErrNotSynced means that the first list of a cache is not complete yet.
var ErrNotSynced = errors.New("the nodes are not listed yet")

// Get returns a Node, or nil if there is none. It returns [ErrNotSynced] instead while that is
// unknown.
func (c Cache) Get(name string) (*nodeview.Node, error) {
	if !c.HasSynced() {
		return nil, ErrNotSynced
	}
	obj, _, err := c.GetStore().GetByKey(name)
	n, _ := obj.(*nodeview.Node)
	return n, err //nolint:wrapcheck // a store in memory has no errors
}

// All returns all Nodes, or [ErrNotSynced].
func (c Cache) All() (iter.Seq[*nodeview.Node], error) {
	if !c.HasSynced() {
		return nil, ErrNotSynced
	}
	return func(yield func(*nodeview.Node) bool) {
		for _, obj := range c.GetStore().List() {
			if n, ok := obj.(*nodeview.Node); ok && !yield(n) {
				return
			}
		}
	}, nil
}

// Delivered returns the Node in the event of an informer, or nil if it has none. If the watch missed
// its delete, it is the last state that was seen.
func Delivered(obj any) *nodeview.Node {
	if tombstone, missed := obj.(toolscache.DeletedFinalStateUnknown); missed {
		obj = tombstone.Obj
	}
	n, _ := obj.(*nodeview.Node)
	return n
}
