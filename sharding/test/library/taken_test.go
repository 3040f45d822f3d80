package library

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shard"
)

// busy is a reconciler that works on each Secret until its context ends, or forever.
type busy struct {
	begun  chan string
	causes chan error
}

func newBusy() *busy { return &busy{begun: make(chan string, 100), causes: make(chan error, 100)} }

func (b *busy) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	b.begun <- req.Name
	<-ctx.Done()
	b.causes <- context.Cause(ctx)
	return reconcile.Result{}, ctx.Err()
}

// busy starts a shard that is working on n Secrets.
func (c *cluster) busy(name string, n int) *busy {
	c.t.Helper()
	b := newBusy()
	c.replica(name, setup{controllers: func(r *replica) error {
		return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).WithOptions(controller.Options{MaxConcurrentReconciles: n}).Complete(b)
	}})
	for range n {
		receive(c, b.begun, "it is at work")
	}
	return b
}

// receive returns the next value.
func receive[T any](c *cluster, from <-chan T, what string) T {
	c.t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.Fail(c.t, "never happened: "+what)
		panic("unreachable")
	}
}

// TestWorkEndsIfTheObjectIsTaken covers R32: it also holds if a user removes the label of an object
// that a shard works on.
func TestWorkEndsIfTheObjectIsTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(2)
	b := c.busy("web-0", 2)
	c.shardByHand("web-1")
	c.eventually(func(t *assert.CollectT) { assert.Contains(t, c.status(t).Table.Shards, "web-1") }, "there is another shard")
	taken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "s-0"}}
	c.patch(taken, `{"metadata":{"labels":{"`+prefix.ShardLabel(c.ring.Name)+`":"web-1","`+prefix.DrainLabel(c.ring.Name)+`":null}}}`)
	require.ErrorIs(t, receive(c, b.causes, "the work ends"), shard.ErrTaken)
	select {
	case cause := <-b.causes:
		require.Fail(t, "the work on the other object ended, too", cause)
	case <-time.After(time.Second): // nothing can signal that no further value will come
	}
}

// Work continues until another shard gets an object of that name.
func TestWorkOnADeletedObjectGoesOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(1)
	b := c.busy("web-0", 1)
	gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "s-0"}}
	require.NoError(t, c.Delete(t.Context(), gone))
	select {
	case cause := <-b.causes:
		require.Fail(t, "the work ended", cause)
	case <-time.After(3 * time.Second):
	}
	c.patch(c.ring, `{"spec":{"namespaceSelector":{"matchLabels":{"`+corev1.LabelMetadataName+`":"none"}}}}`) // nothing restores labels
	again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "s-0", Labels: map[string]string{prefix.ShardLabel(c.ring.Name): "web-1"}}}
	c.eventually(func(t *assert.CollectT) {
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(c.t.Context(), again.DeepCopy())))
	}, "it is created again")
	require.ErrorIs(t, receive(c, b.causes, "the work ends"), shard.ErrTaken)
}

// Work caused by a deletion also ends if the object is created again and another shard gets it. The
// watch of this shard does not show the new object.
func TestWorkThatADeletionCausesEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(1)
	gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "s-0"}}
	b, seen := newBusy(), make(chan string, 100)
	c.replica("web-0", setup{controllers: func(r *replica) error {
		return r.shard.ControllerManagedBy(r.mgr).For(&corev1.Secret{}).Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			err := r.mgr.GetClient().Get(ctx, req.NamespacedName, &corev1.Secret{})
			if req.Name == gone.Name && apierrors.IsNotFound(err) {
				return b.Reconcile(ctx, req)
			}
			seen <- req.Name
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}))
	}})
	receive(c, seen, "it has reconciled the object")
	require.NoError(t, c.Delete(t.Context(), gone))
	receive(c, b.begun, "it works on what the deletion has left")
	// Not earlier: the sharder removes the label of an object that no longer belongs to the ring,
	// and then no shard observes the deletion of that object.
	c.patch(c.ring, `{"spec":{"namespaceSelector":{"matchLabels":{"`+corev1.LabelMetadataName+`":"none"}}}}`) // nothing restores labels
	c.eventually(func(t *assert.CollectT) {
		probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "probe"}}
		require.NoError(t, c.Create(c.t.Context(), probe, client.DryRunAll))
		assert.Empty(t, probe.Labels)
	}, "the policies leave objects alone")
	again := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "s-0", Labels: map[string]string{prefix.ShardLabel(c.ring.Name): "web-1"}}}
	require.NoError(t, c.Create(t.Context(), again))
	require.ErrorIs(t, receive(c, b.causes, "the work ends"), shard.ErrTaken)
}

// A shard that is stuck but respects the context of its reconciler loses an object together with
// the work on it.
func TestForcedMoveEndsTheWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(r *v1alpha1.ClusterRing) {
		r.Spec.Shards.ServiceAccounts, r.Spec.Fence = []string{"operator"}, v1alpha1.FenceDeny
		r.Spec.Handover.OnTimeout, r.Spec.Handover.DrainTimeout = v1alpha1.Force, &metav1.Duration{Duration: time.Second}
	})
	require.NoError(t, c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "operator"}}))
	require.NoError(t, c.Create(t.Context(), &corev1.Pod{ // the fence recognizes a shard by its pod
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web-0"},
		Spec:       corev1.PodSpec{ServiceAccountName: "operator", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}))
	c.secrets(30) // enough for the other shard to get some but not all
	b := c.busy("web-0", 30)
	c.shardByHand("web-1")
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "objects are taken")
	moved := c.owners(t)["web-1"]
	require.Positive(t, moved)
	for range moved {
		require.ErrorIs(t, receive(c, b.causes, "the work ends"), shard.ErrTaken)
	}
}

// A recreated ring assigns an object to another shard only when no shard works on it.
func TestRingThatIsDeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.secrets(20)
	dir := t.TempDir()
	processes := []*process{{name: "web-0"}, {name: "web-1"}}
	journals := []string{filepath.Join(dir, "web-0"), filepath.Join(dir, "web-1")}
	hasBegun := func(i, n int) {
		t.Helper()
		c.eventually(func(t *assert.CollectT) { assert.GreaterOrEqual(t, len(readJournal(t, journals[i])), n) }, "it is at work")
	}
	c.example("web-0", journals[0], "--work=5m")
	hasBegun(0, 1)
	c.example("web-1", journals[1], "--work=10ms")
	c.eventually(func(t *assert.CollectT) { assert.Len(t, c.status(t).Table.Shards, 2) }, "both are in the table")
	again := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: c.ring.Name}, Spec: *c.ring.Spec.DeepCopy()}
	require.NoError(t, c.Delete(t.Context(), c.ring))
	c.eventually(func(t *assert.CollectT) {
		err := c.Get(c.t.Context(), client.ObjectKeyFromObject(c.ring), &v1alpha1.ClusterRing{})
		assert.True(t, apierrors.IsNotFound(err), err)
	}, "the ring goes")
	require.NoError(t, c.Create(t.Context(), again))
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "the objects are distributed")
	hasBegun(1, 2*c.owners(t)["web-1"])
	for i, p := range processes {
		p.log = readJournal(t, journals[i])
	}
	_, _, err := checkExclusion(processes)
	require.NoError(t, err)
}
