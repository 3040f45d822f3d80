package program

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// keepController starts the controller again whenever it ends, as a kubelet does.
func (c *cluster) keepController() *programs.Kept {
	c.t.Helper()
	require.NoError(c.t, c.controller.Kill())
	args := c.controllerArgs("--leader-elect=false")
	kept, err := programs.Keep(func() (*programs.Program, error) { return programs.Launch(nil, "placement", "controller", args...) })
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		assert.NoError(c.t, kept.Stop(stopTimeout))
		if c.t.Failed() {
			c.t.Logf("controller:\n%s", kept.Output())
		}
	})
	return kept
}

// TestRestoredEtcd: all programs run on while etcd is restored from a backup. It names as Ready what
// a pod does that has left since then, and the agent that goes on has acknowledged more than is
// stored.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	const duration = 9 * time.Second // a restore is shorter, so that agents do not stop their work
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	require.NoError(t, queues.Install(t.Context(), plane.Config))
	c := clusterOn(t, plane, duration)
	controller := c.keepController()
	a, b := c.agent("w-0"), c.agent("w-1")
	c.awaitJoined(a, b)
	c.create(4)
	c.await(4, a, b)
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, plane.BackUp(backup))
	c.await(4, a, b)

	c.scale(8)
	c.await(8, a, b)
	require.NoError(t, c.Create(t.Context(), queues.New(c.namespace, "later", 2)))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Len(t, journal.Owners(c.journal(t), "later"), 2) }, patience, period)
	require.NoError(t, b.Stop(stopTimeout))
	c.await(8, a)

	require.NoError(t, plane.Restore(backup, nil))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, reason := c.condition(t, "Acknowledged")
		assert.Equal(t, "False", status)
		assert.Equal(t, "PodLost", reason, "w-1 does not work")
	}, patience, period)
	c.await(4, a)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, journal.Owners(c.journal(t), "later")) }, patience, period)
	c.scale(5)
	c.await(5, a)
	assert.Greater(t, len(controller.Processes()), 1, "a controller that knows the lost history ends")
	assert.Contains(t, controller.Output(), "the cluster was rewound")
}
