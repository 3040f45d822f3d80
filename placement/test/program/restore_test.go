package program

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
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
	plane := ownPlane(t)
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

// TestRewoundLeaseOfAnAgentThatHasAdopted: an agent has adopted its incarnation, and has no
// contract yet, when its Lease goes back to before its first acknowledgement. If it did not write
// that once more, the new contract would have a generation that it ignores.
func TestRewoundLeaseOfAnAgentThatHasAdopted(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, long, 1, 1)
	a := pods[0]
	for _, partitions := range []int{2, 3} {
		c.scale(int64(partitions))
		c.await(partitions, a)
	}
	before := c.acknowledged(t, a)
	require.GreaterOrEqual(t, before.Generation, int64(3))
	require.NoError(t, c.controller.Kill())
	require.NoError(t, a.Kill())
	require.NoError(t, c.Delete(t.Context(), c.contract(t, a)))
	a = c.restart(a)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Contains(t, c.acknowledged(t, a).Failing, contract.Everything, "it has adopted")
	}, patience, period)

	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, contract.AcknowledgedAnnotation)
	require.NoError(t, c.Patch(t.Context(), c.lease(t, a), client.RawPatch(types.MergePatchType, patch)))
	c.startController()
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Len(t, pids(c.journal(t), a), 6) }, patience, period)
	c.await(3, a)
	after := c.acknowledged(t, a)
	assert.Equal(t, before.Incarnation, after.Incarnation)
	assert.Greater(t, after.Generation, before.Generation)
}

// acknowledged returns the acknowledgement on the Lease of a pod.
func (c *cluster) acknowledged(t require.TestingT, p *pod) contract.Ack {
	ack, err := contract.DecodeAck([]byte(c.lease(t, p).Annotations[contract.AcknowledgedAnnotation]))
	require.NoError(t, err)
	return ack
}
