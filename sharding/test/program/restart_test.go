package program

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/controlplane"
)

// withChildren creates a ring under policies in which Secrets control ConfigMaps, and a Secret.
func (c *cluster) withChildren() (*v1alpha1.ClusterRing, *corev1.Secret) {
	c.t.Helper()
	ring := c.ring("")
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.admitting(ring, "web-0", "web-1")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, "Balanced", reasonOf(s, "Balanced"), "no resync is due that would find children")
	})
	return ring, c.secret("owner")
}

// createsChildren creates ConfigMaps through a client as soon as its API server serves them, until
// one has its shard in the first version. It returns all of them.
func (c *cluster) createsChildren(through client.Client, ring *v1alpha1.ClusterRing, owner *corev1.Secret, name string) (all []client.Object) {
	c.t.Helper()
	began, without := time.Now(), 0
	require.Eventually(c.t, func() bool {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: fmt.Sprintf("%s-%d", name, len(all)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID, Controller: new(true)}},
		}}
		if err := through.Create(c.t.Context(), m); err != nil {
			return false // the server has just started
		}
		all = append(all, m)
		if m.Labels[prefix.ShardLabel(ring.Name)] == "" {
			without++
		}
		return without < len(all)
	}, patience, period)
	c.t.Logf("%s: %d children had no shard in their first version, for %s", name, without, time.Since(began))
	return all
}

// follow waits until all children are at the shard of their Secret.
func (c *cluster) follow(ring *v1alpha1.ClusterRing, owner *corev1.Secret, children []client.Object) {
	c.t.Helper()
	label := prefix.ShardLabel(ring.Name)
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		want := c.reread(t, owner).Labels[label]
		require.NotEmpty(t, want)
		for _, child := range children {
			m := &corev1.ConfigMap{}
			require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(child), m))
			assert.Equal(t, want, m.Labels[label], m.Name)
		}
	}, patience, period)
}

// TestChildWithoutAShardGetsOne covers R22: a policy can be skipped, for example by an API server
// that has just started. Here, the label is removed with the sharder's field manager, which
// policies allow.
func TestChildWithoutAShardGetsOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring, owner := c.withChildren()
	children := c.createsChildren(c, ring, owner, "child")
	remove := []byte(`{"metadata":{"labels":{"` + prefix.ShardLabel(ring.Name) + `":null}}}`)
	require.NoError(t, c.asSharder().Patch(t.Context(), children[0], client.RawPatch(types.MergePatchType, remove)))
	require.NotContains(t, children[0].GetLabels(), prefix.ShardLabel(ring.Name))
	c.follow(ring, owner, children)
}

// TestChildrenAreAssignedAfterRestarts covers R21: an API server that has restarted knows the kind
// of the policies' parameter.
func TestChildrenAreAssignedAfterRestarts(t *testing.T) {
	t.Parallel()
	c := ownSite(t)
	c.sharder("a")
	ring, owner := c.withChildren()
	for n := range 4 {
		require.NoError(t, c.plane.KillServer(controlplane.APIServer))
		require.NoError(t, c.plane.StartServer(controlplane.APIServer))
		c.follow(ring, owner, c.createsChildren(c, ring, owner, fmt.Sprintf("restart-%d", n)))
	}
}

// TestOneOfTwoAPIServersRestarts covers R21: the dry run of the sharder reaches only one of two API
// servers, and children are created through the other one.
func TestOneOfTwoAPIServersRestarts(t *testing.T) {
	t.Parallel()
	c := ownSite(t)
	c.sharder("a")
	ring, owner := c.withChildren()
	twin, err := c.plane.Twin()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, twin.Stop()) })
	through, err := client.New(twin.Config, client.Options{})
	require.NoError(t, err)
	for n := range 3 {
		c.follow(ring, owner, c.createsChildren(through, ring, owner, fmt.Sprintf("start-%d", n)))
		require.NoError(t, twin.Stop())
		require.NoError(t, twin.Start())
	}
	c.follow(ring, owner, c.createsChildren(through, ring, owner, "last"))
}
