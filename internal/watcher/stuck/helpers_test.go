package stuck_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
)

// informer is an informer that has listed its Nodes.
type informer struct {
	cache.Informer

	store toolscache.Store
}

func (informer) HasSynced() bool              { return true }
func (i informer) GetStore() toolscache.Store { return i.store }

// cached returns a cache of Nodes, and the store behind it.
func cached(t *testing.T, all ...*nodeview.Node) (nodes.Cache, toolscache.Store) {
	t.Helper()
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, n := range all {
		require.NoError(t, store.Add(n))
	}
	return nodes.Cache{Informer: informer{store: store}}, store
}
