package library

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keeping starts a shard that keeps its objects when it stops.
func (c *cluster) keeping(name string, w *work) *replica {
	c.t.Helper()
	s := with(w)
	s.options.KeepObjects = true
	return c.replica(name, s)
}

// TestRollingStatefulSetMovesNothing: shards that return under their names have their objects, and
// none of these has had another shard in between.
func TestRollingStatefulSetMovesNothing(t *testing.T) {
	t.Parallel()
	const n = 30
	c := newCluster(t)
	names := []string{"web-0", "web-1", "web-2"}
	running := map[string]*replica{}
	for _, name := range names {
		running[name] = c.keeping(name, &work{})
	}
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, len(names), c.status(t).AvailableShards) }, "all are ready")
	c.secrets(n)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, names...) }, "every Secret has a shard")
	shares, generation := c.owners(t), c.status(t).Table.Generation
	watching, err := client.NewWithWatch(c.config, client.Options{})
	require.NoError(t, err)
	before := &corev1.SecretList{}
	require.NoError(t, c.List(t.Context(), before, client.InNamespace(c.namespace)))
	changes, err := watching.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(c.namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: before.ResourceVersion}})
	require.NoError(t, err)
	defer changes.Stop()

	for _, name := range names {
		running[name].stop()
		require.NoError(t, running[name].wait())
		assert.Equal(t, name, *c.leaseOf(t, name).Spec.HolderIdentity, "it keeps its Lease")
		again, stopped := &work{}, time.Now()
		c.keeping(name, again)
		c.eventually(func(t *assert.CollectT) { assert.Len(t, again.names(), shares[name]) }, "it has its objects again")
		t.Logf("%s had its %d objects after %s", name, shares[name], time.Since(stopped))
	}
	assert.Equal(t, shares, c.owners(t))
	assert.Equal(t, generation, c.status(t).Table.Generation, "the table has not changed")
	c.secret("last")
	select {
	case change := <-changes.ResultChan():
		secret, _ := change.Object.(*corev1.Secret)
		require.NotNil(t, secret, change)
		assert.Equal(t, "last", secret.Name, "no other Secret was written")
	case <-time.After(patience):
		require.Fail(t, "the watch shows nothing")
	}
}

// TestObjectsAreNotKeptForLong: they move like those of a dead shard once the Lease has expired.
func TestObjectsAreNotKeptForLong(t *testing.T) {
	t.Parallel()
	const n = 10
	c := newCluster(t)
	leaver := c.keeping("web-0", &work{})
	c.keeping("web-1", &work{})
	c.eventually(func(t *assert.CollectT) { assert.EqualValues(t, 2, c.status(t).AvailableShards) }, "both are ready")
	c.secrets(n)
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "every Secret has a shard")
	shares := c.owners(t)
	leaver.stop()
	require.NoError(t, leaver.wait())
	assert.Equal(t, shares, c.owners(t))
	assert.Equal(t, "web-0", *c.lease(t).Spec.HolderIdentity)
	c.patch(c.lease(t), `{"spec":{"leaseDurationSeconds":1}}`)
	c.eventually(func(t *assert.CollectT) { assert.Equal(t, map[string]int{"web-1": n}, c.owners(t)) }, "the other one has them all")
}
