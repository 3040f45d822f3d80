package program

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestSharderEndsAfterEtcdWasRestored covers the rest of R37: the sharder's record of Leases and
// objects is invalid after that.
func TestSharderEndsAfterEtcdWasRestored(t *testing.T) {
	t.Parallel()
	c := ownSite(t)
	ring := c.create(c.ring(""))
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, c.plane.BackUp(backup))
	leads := c.sharder("leads")
	for _, name := range []string{"web-0", "web-1"} {
		c.lease(ring, name, 600, 0)
	}
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Len(t, s.Table.Shards, 2) })
	require.NoError(t, c.plane.Restore(backup, nil))
	select {
	case <-leads.Done():
		assert.Equal(t, 1, leads.ExitCode())
		assert.Contains(t, leads.Output(), "the cluster was rewound")
	case <-time.After(patience):
		require.Fail(t, "it does not detect that etcd was restored")
	}
	c.sharder("starts-again")
	c.lease(ring, "web-2", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, []string{"web-2"}, s.Table.Shards)
	})
}

// A sharder can use other keys than the default ones.
func TestLabelPrefix(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.sharder("shared", "--label-prefix=shards.example.com")
	ring := c.create(c.ring(""))
	const other v1alpha1.Prefix = "shards.example.com"
	name, now := "web-0", metav1.NowMicro()
	require.NoError(t, c.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{other.RingLabel(): ring.Name}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(600)), RenewTime: &now},
	}))
	c.lease(ring, "web-1", 600, 0) // with the default prefix, which no ring uses
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		s := c.status(collect, ring)
		require.NotNil(collect, s.Table)
		assert.Equal(collect, []string{name}, s.Table.Shards)
		assert.Equal(collect, "ready", c.stored(collect, name).Labels[other.StateLabel()])
	}, patience, period)
	s := c.secret("s")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		labels := c.reread(collect, s).Labels
		assert.Equal(collect, name, labels[other.ShardLabel(ring.Name)])
		assert.NotContains(collect, labels, prefix.ShardLabel(ring.Name))
	}, patience, period)
	for flag, message := range map[string]string{"Not a prefix": "not a valid prefix of label keys", string(v1alpha1.TimeberttPrefix): "another project"} {
		assert.Contains(t, c.failing("refused", "--label-prefix="+flag).Output(), message)
	}
}
