package library

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/sharding/shard"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// TestShardEndsAfterEtcdWasRestored covers R37: the caches of a shard may then hold objects that
// belong to another shard again, and no watch would ever report that.
func TestShardEndsAfterEtcdWasRestored(t *testing.T) {
	t.Parallel()
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	require.NoError(t, crds.Install(t.Context(), plane.Config))
	webhook, err := crds.WebhookFlags()
	require.NoError(t, err)
	sharder, err := programs.Keep(func() (*programs.Program, error) {
		return programs.Start("sharder", "own", plane.Kubeconfig, append(webhook, "--leader-elect=false")...)
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sharder.Kill()) })
	c := clusterOn(t, plane, sharder.Output)
	c.secrets(20)
	stays := c.replica("web-0", with(&work{}))
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0") }, "one shard has everything")
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, plane.BackUp(backup))
	joins := c.replica("web-1", with(&work{}))
	c.eventually(func(t *assert.CollectT) { c.isBalanced(t, "web-0", "web-1") }, "two shards share the objects")

	require.NoError(t, plane.Restore(backup, nil))
	require.ErrorIs(t, joins.wait(), shard.ErrLeaseLost)
	require.ErrorIs(t, stays.wait(), shard.ErrLeaseLost)

	again := map[string]*work{"web-0": {}, "web-1": {}}
	for name, w := range again {
		c.replica(name, with(w))
	}
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, "web-0", "web-1")
		for name, w := range again {
			assert.Subset(t, w.names(), c.names(name))
		}
	}, "the next processes share the objects of the backup")
}
