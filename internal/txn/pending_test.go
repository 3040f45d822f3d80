package txn_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

func TestPendingOfTheCacheIsInTheOrderOfNumbers(t *testing.T) {
	q := newCachedQueue(t)
	for _, rv := range []string{"100", "9", "10"} {
		tx := deleted()
		tx.ResourceVersion = rv
		require.NoError(t, q.Put(t.Context(), tx))
	}
	pending := eventuallyPending(t, q, "node-1", 3)
	assert.Equal(t, []string{"9", "10", "100"}, []string{
		pending[0].ResourceVersion, pending[1].ResourceVersion, pending[2].ResourceVersion,
	})
}

func TestPendingIsOfOneNodeAndWithoutTheMalformed(t *testing.T) {
	q := newCachedQueue(t)
	other := deleted()
	other.Node = "node-2"
	malformed := deleted().ConfigMap(q.Namespace)
	malformed.Name = txn.NodeHash("node-1") + ".7"
	malformed.Data = map[string]string{"type": "moved"}
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: "kube-root-ca.crt"}}
	require.NoError(t, q.Client.Create(t.Context(), malformed))
	require.NoError(t, q.Client.Create(t.Context(), foreign))
	require.NoError(t, q.Put(t.Context(), other))
	require.NoError(t, q.Put(t.Context(), deleted())) // the last, so all the others are in the cache with it

	pending := eventuallyPending(t, q, "node-1", 1)
	assert.Equal(t, deleted(), pending[0].Transaction)
	pending = eventuallyPending(t, q, "node-2", 1)
	assert.Equal(t, other, pending[0].Transaction)
	pending, err := q.Pending(t.Context(), txn.NodeHash("node-3"))
	require.NoError(t, err)
	assert.Empty(t, pending)
}

func TestPendingIsWhatRemoveTakes(t *testing.T) {
	q := newCachedQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	pending := eventuallyPending(t, q, "node-1", 1)
	assert.Equal(t, onlyConfigMap(t, q).UID, pending[0].ObjectUID)

	require.NoError(t, q.Remove(t.Context(), pending[0]))
	eventuallyPending(t, q, "node-1", 0)
}

func TestPendingSeesOnlyItsNamespace(t *testing.T) {
	other := newQueue(t)
	q := newCachedQueue(t, other.Namespace)
	require.NoError(t, other.Put(t.Context(), deleted()))
	later := deleted()
	later.ResourceVersion = "2572"
	require.NoError(t, q.Put(t.Context(), later))
	pending := eventuallyPending(t, q, "node-1", 1)
	assert.Equal(t, later, pending[0].Transaction)
	q.Namespace = other.Namespace // it was in the cache as well
	pending = eventuallyPending(t, q, "node-1", 1)
	assert.Equal(t, deleted(), pending[0].Transaction)
}

func TestPendingWithoutTheIndexIsAnError(t *testing.T) {
	q := newQueue(t)
	q.Reader = startCache(t, func(cache.Cache) {}, q.Namespace)
	_, err := q.Pending(t.Context(), txn.NodeHash("node-1"))
	require.ErrorContains(t, err, "listing the transactions of node hash "+txn.NodeHash("node-1"))
}

func TestIndexNodeHashKnowsTransactionsByTheirNames(t *testing.T) {
	assert.Equal(t, []string{txn.NodeHash("node-1")}, txn.IndexNodeHash(deleted().ConfigMap("ns")))
	for name, tc := range badNames {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, txn.IndexNodeHash(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: tc}}))
		})
	}
}

// newCachedQueue returns a queue that reads from a cache with the index, in which are more namespaces than its own.
func newCachedQueue(t *testing.T, more ...string) *txn.Queue {
	t.Helper()
	q := newQueue(t)
	q.Reader = startCache(t, func(c cache.Cache) {
		require.NoError(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, txn.NodeHashIndex, txn.IndexNodeHash))
	}, append(more, q.Namespace)...)
	return q
}

func startCache(t *testing.T, prepare func(cache.Cache), namespaces ...string) client.Reader {
	t.Helper()
	opts := cache.Options{DefaultNamespaces: map[string]cache.Config{}}
	for _, namespace := range namespaces {
		opts.DefaultNamespaces[namespace] = cache.Config{}
	}
	c, err := cache.New(api.Config, opts)
	require.NoError(t, err)
	prepare(c)
	stopped := make(chan error, 1)
	go func() { stopped <- c.Start(t.Context()) }() // t.Context is cancelled before the cleanup
	t.Cleanup(func() { assert.NoError(t, <-stopped) })
	require.True(t, c.WaitForCacheSync(t.Context()))
	return c
}

// eventuallyPending returns the pending transactions of a node when there are that many.
func eventuallyPending(t *testing.T, q *txn.Queue, node string, count int) []txn.Queued {
	t.Helper()
	var pending []txn.Queued
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		pending, err = q.Pending(t.Context(), txn.NodeHash(node))
		require.NoError(c, err)
		require.Len(c, pending, count)
	}, 10*time.Second, 10*time.Millisecond)
	return pending
}
