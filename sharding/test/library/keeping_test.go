package library

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keeping starts a shard that keeps its objects when it stops.
func (c *cluster) keeping(name string, lease time.Duration, w *work) *replica {
	c.t.Helper()
	s := with(w)
	s.options.KeepObjects, s.options.LeaseDuration = true, lease
	return c.replica(name, s)
}

// TestRollingStatefulSetMovesNothing: shards that return under their names have their objects at
// once, and none of these has had another shard in between.
func TestRollingStatefulSetMovesNothing(t *testing.T) {
	t.Parallel()
	const n = 30
	c := newCluster(t)
	names := []string{"web-0", "web-1", "web-2"}
	running := map[string]*replica{}
	for _, name := range names {
		running[name] = c.keeping(name, longLease, &work{})
	}
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, len(names), c.status(t).AvailableShards) }, "all are ready")
	c.secrets(n)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, names...) }, "every Secret has a shard")
	shares, generation := c.owners(t), c.status(t).Table.Generation
	watching, err := client.NewWithWatch(c.config, client.Options{})
	require.NoError(t, err)
	changes, err := watching.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(c.namespace))
	require.NoError(t, err)
	defer changes.Stop()
	for range n { // as they are
		<-changes.ResultChan()
	}

	for _, name := range names {
		running[name].stop()
		require.NoError(t, running[name].wait())
		assert.Equal(t, name, *c.leaseOf(t, name).Spec.HolderIdentity, "it keeps its Lease")
		again, stopped := &work{}, time.Now()
		c.keeping(name, longLease, again)
		c.eventually(func(t *assert.CollectT) { assert.Len(t, again.names(), shares[name]) }, "it has its objects again")
		t.Logf("%s had its %d objects after %s", name, shares[name], time.Since(stopped))
	}
	assert.Equal(t, shares, c.owners(t))
	assert.Equal(t, generation, c.status(t).Table.Generation, "the table has not changed")
	c.secret("last")
	last := <-changes.ResultChan()
	assert.Equal(t, "last", last.Object.(*corev1.Secret).Name, "no other Secret was written")
}

// TestObjectsAreNotKeptForLong: a shard that does not return is dead after twice its lease duration.
func TestObjectsAreNotKeptForLong(t *testing.T) {
	t.Parallel()
	const n, lease = 10, 3 * time.Second
	c := newCluster(t)
	leaver := c.keeping("web-0", lease, &work{})
	c.keeping("web-1", longLease, &work{})
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, 2, c.status(t).AvailableShards) }, "both are ready")
	c.secrets(n)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "every Secret has a shard")
	leaver.stop()
	require.NoError(t, leaver.wait())
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, map[string]int{"web-1": n}, c.owners(t)) }, "the other one has them all")
}
