package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// requests are the requests of an Index for a namespace. Its watch can fall so far behind that
// everything must be listed again.
type requests struct {
	client    client.WithWatch
	namespace string

	mu     sync.Mutex
	open   watch.Interface
	behind bool // watches fail unless they begin with a list
	away   bool // all requests fail
}

func (r *requests) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, apierrors.NewServiceUnavailable("away")
	}
	var all corev1.ConfigMapList
	err := r.client.List(ctx, &all, &client.ListOptions{Namespace: r.namespace, Raw: &options})
	r.behind = r.behind && err != nil
	return &all, err
}

func (r *requests) watch(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.away:
		return nil, apierrors.NewServiceUnavailable("away")
	case r.behind && options.SendInitialEvents == nil:
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	w, err = r.client.Watch(ctx, &corev1.ConfigMapList{}, &client.ListOptions{Namespace: r.namespace, Raw: &options})
	if err == nil {
		r.open, r.behind = w, false
	}
	return w, err
}

// whileAway does something that the watch misses, but a list shows.
func (r *requests) whileAway(do func()) {
	r.mu.Lock()
	r.away, r.behind = true, true
	r.open.Stop()
	r.mu.Unlock()
	do()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = false
}

// tally repeatedly counts the transactions that an index holds of some nodes, until stop is called.
// It returns the numbers of transactions that were seen, each with a node.
func tally(x *queue.Index, nodes []string) (stop func() map[int]string) {
	done, seen := make(chan struct{}), make(chan map[int]string)
	go func() {
		all := map[int]string{}
		for {
			for _, node := range nodes {
				all[len(x.Pending(node))] = node
			}
			select {
			case <-done:
				seen <- all
				return
			default:
			}
		}
	}()
	return func() map[int]string {
		close(done)
		return <-seen
	}
}

// A processor that sees a part of a list would miss the labels in the other part.
func TestListTakesEffectAtomically(t *testing.T) {
	const count, each = 30, 4
	q := newQueue(t)
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	var nodes []string
	for i := range count {
		nodes = append(nodes, fmt.Sprint("node-", i))
	}
	put := func(from int) {
		for i := range each {
			for _, node := range nodes {
				transaction := deleted()
				transaction.Node, transaction.Revision = node, revision.MustParse(strconv.Itoa(from+i))
				require.NoError(t, q.Put(t.Context(), transaction))
			}
		}
	}
	put(100)
	x, r := queue.NewIndex(), &requests{client: c, namespace: q.Namespace}
	stop := tally(x, nodes)
	go x.Run(t.Context(), &toolscache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.watch})
	require.NoError(t, x.WaitForSync(t.Context()))
	r.whileAway(func() { put(200) })
	full := func(node string) bool { return len(x.Pending(node)) == 2*each }
	require.Eventually(t, func() bool { return !slices.ContainsFunc(nodes, func(node string) bool { return !full(node) }) }, 3*time.Minute, 10*time.Millisecond)
	seen := stop()
	for n, node := range seen {
		assert.Zero(t, n%each, "%d transactions of %s", n, node)
	}
	assert.Contains(t, seen, each)
	assert.Equal(t, count*2*each, x.Stock().Pending[txn.Deleted])
}

func TestIndexFollowsTheNamespace(t *testing.T) {
	q := newQueue(t)
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	x, r := queue.NewIndex(), &requests{client: c, namespace: q.Namespace}
	go x.Run(t.Context(), &toolscache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.watch})
	require.NoError(t, x.WaitForSync(t.Context()))
	require.NoError(t, q.Put(t.Context(), deleted()))
	pending := func() []queue.Queued { return x.Pending(deleted().Node) }
	require.Eventually(t, func() bool { return len(pending()) == 1 }, 3*time.Minute, 10*time.Millisecond)
	require.NoError(t, q.Expedite(t.Context(), pending()[0]))
	require.Eventually(t, func() bool { return pending()[0].AtOnce }, 3*time.Minute, 10*time.Millisecond)
	require.NoError(t, q.Remove(t.Context(), pending()[0]))
	require.Eventually(t, func() bool { return len(pending()) == 0 }, 3*time.Minute, 10*time.Millisecond)
}
