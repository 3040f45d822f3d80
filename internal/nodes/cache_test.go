package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
)

// informer is an informer with a store.
type informer struct {
	cache.Informer

	store  toolscache.Store
	synced bool
}

func (i *informer) HasSynced() bool            { return i.synced }
func (i *informer) GetStore() toolscache.Store { return i.store }

func TestCacheIsUnknownUntilItIsListed(t *testing.T) {
	t.Parallel()
	from := &informer{store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	a, b := &nodeview.Node{Name: "a"}, &nodeview.Node{Name: "b"}
	require.NoError(t, from.store.Add(a))
	require.NoError(t, from.store.Add(b))
	c := nodes.Cache{Informer: from}
	_, err := c.Get("a")
	require.ErrorIs(t, err, nodes.ErrNotSynced)
	_, err = c.All()
	require.ErrorIs(t, err, nodes.ErrNotSynced)

	from.synced = true
	n, err := c.Get("a")
	require.NoError(t, err)
	assert.Same(t, a, n)
	n, err = c.Get("c")
	require.NoError(t, err)
	assert.Nil(t, n)
	all, err := c.All()
	require.NoError(t, err)
	var names []string
	for n := range all {
		names = append(names, n.Name)
	}
	assert.ElementsMatch(t, []string{"a", "b"}, names)
}

func TestDeliveredNodes(t *testing.T) {
	t.Parallel()
	n := &nodeview.Node{Name: "a"}
	assert.Same(t, n, nodes.Delivered(n))
	assert.Same(t, n, nodes.Delivered(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: n}))
	assert.Nil(t, nodes.Delivered(toolscache.DeletedFinalStateUnknown{Key: "a"}), "its last state is unknown")
}
