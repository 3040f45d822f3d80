package library

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// TestControllerWithoutEventsAcknowledges covers R43. In upstream's example, an inverted predicate
// hides events (F22).
func TestControllerWithoutEventsAcknowledges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(20)
	nothing := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	w := &work{}
	c.replica("web-0", setup{controllers: func(r *replica) error {
		return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}, builder.WithPredicates(nothing)).WithEventFilter(nothing).Complete(w)
	}})
	c.has(20)
	c.shardByHand("web-1")
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "it gives away what it must")
	assert.Zero(t, w.total())
}

// TestControllersOfAKindSharePassages covers R43: an object is released when no controller works on
// it, and only that object waits for this. A reconciler that does not return keeps no other object
// from moving.
func TestControllersOfAKindSharePassages(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(30)
	var stuck string // an object that moves to a second shard, which gets the upper half of the slots
	for i := range 30 {
		if name := fmt.Sprintf("s-%d", i); slots.Slot("/Secret/"+c.namespace+"/"+name) >= slots.Count/2 {
			stuck = name
		}
	}
	begun, busy := make(chan struct{}), make(chan struct{})
	slow := &work{do: func(ctx context.Context, req reconcile.Request) error {
		if req.Name != stuck {
			return nil
		}
		close(begun) // a second reconcile must not begin before the first one ends
		select {
		case <-busy:
		case <-ctx.Done():
		}
		return nil
	}}
	fast := &work{}
	c.replica("web-0", setup{controllers: func(r *replica) error {
		err := r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Named("slow").Complete(slow) // one worker
		if err != nil {
			return err
		}
		return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}, builder.OnlyMetadata).Named("fast").Complete(fast)
	}})
	c.has(30)
	<-begun
	c.eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, fast.total(), 30) }, "one of them is stuck")
	c.shardByHand("web-1")
	owner := func(t require.TestingT) string {
		s := &corev1.Secret{}
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: stuck}, s))
		assert.Equal(t, "web-1", s.Labels[prefix.DrainLabel(c.ring.Name)])
		return s.Labels[prefix.ShardLabel(c.ring.Name)]
	}
	c.eventually(func(t *assert.CollectT) {
		assert.Equal(t, "web-0", owner(t))
		assert.Equal(t, 1, c.owners(t)[""], "all others that must move have moved")
		assert.Positive(t, c.owners(t)["web-1"])
	}, "others move")
	assert.Equal(t, "web-0", owner(t))
	close(busy)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "it moves when the work is done")
	assert.Contains(t, c.names("web-1"), stuck)
}

// An object that leaves the cache was deleted or has moved. Only a deletion is reconciled.
func TestOnlyDeletedObjectsAreReconciled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(20)
	w := &work{}
	c.replica("web-0", with(w))
	c.eventually(func(t *assert.CollectT) { assert.Len(t, w.names(), 20) }, "each is reconciled")
	gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "s-0"}}
	require.NoError(t, c.Delete(t.Context(), gone))
	c.eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, w.count("s-0"), 2) }, "the deleted one is reconciled again")
	c.shardByHand("web-1")
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "half of them move")
	before := map[string]int{}
	for _, name := range c.names("web-1") {
		before[name] = w.count(name)
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
		c.patch(s, `{"metadata":{"annotations":{"a":"b"}}}`)
	}
	require.NotEmpty(t, before)
	mine := c.names("web-0")[0]
	calls := w.count(mine)
	c.patch(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: mine}}, `{"metadata":{"annotations":{"a":"b"}}}`)
	c.eventually(func(t *assert.CollectT) { assert.Greater(t, w.count(mine), calls) }, "a change of its own")
	for name, n := range before {
		assert.Equal(t, n, w.count(name), "%s is another shard's", name)
	}
}

// names returns the names of the Secrets of a shard.
func (c *cluster) names(owner string) []string {
	c.t.Helper()
	list := &corev1.SecretList{}
	require.NoError(c.t, c.List(c.t.Context(), list, client.InNamespace(c.namespace), client.MatchingLabels{prefix.ShardLabel(c.ring.Name): owner}))
	var all []string
	for _, s := range list.Items {
		all = append(all, s.Name)
	}
	return all
}

// Neither a kind that the shard reads without reconciling it nor an object that is being deleted
// may keep the ring from being balanced.
func TestObjectsWithoutAControllerAreGivenAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Resources = append(r.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "serviceaccounts"}})
	})
	for i := range 20 {
		a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "a-" + string(rune('a'+i)), Finalizers: []string{"example.com/test"}}}
		require.NoError(t, c.Create(t.Context(), a))
		if i%2 == 0 {
			require.NoError(t, c.Delete(t.Context(), a))
		}
	}
	s := with(&work{})
	s.options.Kinds = []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.ServiceAccount{}}
	c.replica("web-0", s)
	accounts := func(t require.TestingT) map[string]int {
		list, all := &corev1.ServiceAccountList{}, map[string]int{}
		require.NoError(t, c.List(c.t.Context(), list, client.InNamespace(c.namespace)))
		for _, a := range list.Items {
			all[a.Labels[prefix.ShardLabel(c.ring.Name)]]++
		}
		return all
	}
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, map[string]int{"web-0": 20}, accounts(t)) }, "all are there")
	c.shardByHand("web-1")
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0", "web-1")
		assert.Len(t, accounts(t), 2)
	}, "both have some")
}

// TestLeaveTimeout covers the rest of R31: if the objects of a leaving shard do not move, it exits
// after LeaveTimeout and releases its Lease.
func TestLeaveTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(5)
	w := &work{}
	s := with(w)
	const timeout = 10 * time.Second // enough for a slow machine to announce that it leaves
	s.options.LeaveTimeout = timeout
	r := c.replica("web-0", s)
	c.eventually(func(t *assert.CollectT) { assert.Len(t, w.names(), 5) }, "it works")
	began := time.Now()
	r.stop()
	require.NoError(t, r.wait())
	assert.GreaterOrEqual(t, time.Since(began), timeout)
	assert.Equal(t, "true", c.lease(t).Annotations[prefix.LeavingAnnotation()], "it has announced that it leaves")
	c.eventually(func(t *assert.CollectT) { // released at once or, on a machine that is too slow for that, taken over by the sharder
		assert.NotEqual(t, "web-0", *c.lease(t).Spec.HolderIdentity)
	}, "the Lease is free")
}

// TestShardThatLeavesAnObjectIsReported covers R31: a shard that works on an object for longer than
// LeaveTimeout leaves it to the sharder, which reports that.
func TestShardThatLeavesAnObjectIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // the second shard gets no objects before the first one leaves
	})
	c.secrets(5)
	w := &work{do: func(ctx context.Context, _ reconcile.Request) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	s := with(w)
	s.options.LeaveTimeout = 10 * time.Second // enough for a slow machine to announce that it leaves
	r := c.replica("web-0", s)
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, 1, w.total()) }, "it works on one object, one at a time")
	c.replica("web-1", with(&work{}))
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, 2, c.status(t).AvailableShards) }, "both are ready")
	r.stop()
	require.NoError(t, r.wait())
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, map[string]int{"web-1": 5}, c.owners(t)) }, "the other one has all")
	c.eventually(func(t *assert.CollectT) {
		events := &eventsv1.EventList{}
		require.NoError(t, c.List(c.t.Context(), events, client.InNamespace(metav1.NamespaceDefault)))
		assert.True(t, slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "ObjectsLeft" && e.Regarding.Name == c.ring.Name && strings.Contains(e.Note, "shard web-0 ended before")
		}))
	}, "the sharder has reported it")
}

// A shard that has released its Lease with objects left and acquires it again must not act while
// the sharder may be moving these objects.
func TestShardThatReturnsWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(5)
	first := &work{}
	r := c.replica("web-0", with(first))
	c.eventually(func(t *assert.CollectT) { assert.Len(t, first.names(), 5) }, "it works")
	r.stop()
	require.NoError(t, r.wait())
	require.Equal(t, map[string]int{"web-0": 5}, c.owners(t), "there is no other shard")
	c.patch(c.lease(t), `{"spec":{"holderIdentity":""}}`) // a slow machine may not have released it in time

	second, began := &work{}, time.Now()
	c.replica("web-0", with(second))
	c.eventually(func(t *assert.CollectT) { assert.Len(t, second.names(), 5) }, "it works again")
	assert.GreaterOrEqual(t, second.began.Sub(began), 15*time.Second)
}
