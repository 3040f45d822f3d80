package library

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// seen records the last value of each Secret that a reconciler has read.
type seen struct {
	mu     sync.Mutex
	values map[string]string
}

// reader returns a reconciler that records what a replica reads from its cache.
func (s *seen) reader(r *replica) reconcile.Reconciler {
	return &work{do: func(ctx context.Context, req reconcile.Request) error {
		secret := &corev1.Secret{}
		if err := r.mgr.GetClient().Get(ctx, req.NamespacedName, secret); err != nil {
			return client.IgnoreNotFound(err) // it has moved
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.values == nil {
			s.values = map[string]string{}
		}
		s.values[req.Name] = string(secret.Data["key"])
		return nil
	}}
}

// with returns the number of Secrets whose last value is the given one.
func (s *seen) with(value string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values {
		if v == value {
			n++
		}
	}
	return n
}

// edit changes the value of n Secrets.
func (c *cluster) edit(n int, value string) {
	c.t.Helper()
	for i := range n {
		c.patch(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: fmt.Sprintf("s-%d", i)}}, `{"stringData":{"key":"`+value+`"}}`)
	}
}

// TestObjectsOfAShardThatLeavesAreReconciled covers R31: a leaving shard handles edits of the
// objects that it still has, and the next shard handles edits of the others. The drain is blocked
// meanwhile, because one object moves at a time and reconcilers are busy.
func TestObjectsOfAShardThatLeavesAreReconciled(t *testing.T) {
	t.Parallel()
	const n = 20
	c := newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Handover.MaxConcurrentMoves = 1
		r.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // the second shard gets no objects before the first one leaves
	})
	c.secrets(n)
	busy, begun := make(chan struct{}), make(chan string, 10*n)
	release := sync.OnceFunc(func() { close(busy) })
	first, second := &seen{}, &seen{}
	leaver := c.replica("web-0", leaving(n, first, begun, busy))
	t.Cleanup(release)
	for range n {
		receive(c, begun, "it is at work on each")
	}
	c.replica("web-1", setup{controllers: func(r *replica) error {
		return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Complete(second.reader(r))
	}})
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, 2, c.status(t).AvailableShards) }, "both are ready")

	leaver.stop()
	c.eventually(func(t *assert.CollectT) {
		assert.Equal(t, map[string]int{"web-0": n - 1, "": 1}, c.owners(t))
	}, "one object is drained")
	c.edit(n, "edited")
	c.eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, first.with("edited"), n-1) }, "the leaving shard handles the edits")
	assert.Equal(t, map[string]int{"web-0": n - 1, "": 1}, c.owners(t), "and still leaves")
	held := c.lease(t)
	assert.Equal(t, "web-0", *held.Spec.HolderIdentity)
	assert.Equal(t, "true", held.Annotations[prefix.LeavingAnnotation()])
	assert.Zero(t, second.with("edited"))

	release()
	c.edit(n, "again") // while they are moving
	require.NoError(t, leaver.wait())
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, n, second.with("again")) }, "the other one acts on all others")
	assert.Equal(t, map[string]int{"web-1": n}, c.owners(t))
	c.eventually(func(t *assert.CollectT) { assert.NotEqual(t, "web-0", *c.lease(t).Spec.HolderIdentity) }, "its Lease is free")
}

// leaving sets up a shard with two controllers: one records what it reads, the other one works on
// each of n Secrets until it is no longer busy.
func leaving(n int, notes *seen, begun chan<- string, busy <-chan struct{}) setup {
	slow := &work{do: func(ctx context.Context, req reconcile.Request) error {
		begun <- req.Name
		select {
		case <-busy:
		case <-ctx.Done():
		}
		return nil
	}}
	s := setup{controllers: func(r *replica) error {
		err := r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Named("slow").WithOptions(controller.Options{MaxConcurrentReconciles: n}).Complete(slow)
		if err != nil {
			return err
		}
		return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Named("reader").Complete(notes.reader(r))
	}}
	s.options.LeaveTimeout = patience
	return s
}
