package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/faultproxy"
)

// plane is the data plane of a pod.
type plane struct {
	*journal.DataPlane

	t    *testing.T
	kill func() // ends it without an acknowledgement
}

// newPlane starts a data plane and an agent with --file in a new pod of that name.
func (c *cluster) newPlane(name string) (*plane, *pod) {
	c.t.Helper()
	d := &plane{t: c.t, DataPlane: &journal.DataPlane{Files: c.t.TempDir(), Journal: c.dir, Pod: name, MaxAge: agent.RenewDeadline(c.duration)}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context())) // it ends after its agent
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	d.kill = sync.OnceFunc(func() {
		cancel()
		assert.NoError(c.t, <-ended)
	})
	c.t.Cleanup(d.kill)
	return d, c.agentWith(&pod{name: name, uid: uuid.NewUUID()}, "--file="+d.Files)
}

// restartWith starts the agent of a data plane again, in the same pod.
func (c *cluster) restartWith(d *plane, p *pod) *pod {
	c.t.Helper()
	return c.agentWith(p, "--file="+d.Files)
}

// text returns the content of the file.
func (d *plane) text(t require.TestingT) string {
	content, err := os.ReadFile(filepath.Join(d.Files, agent.ContractFile))
	require.NoError(t, err)
	return string(content)
}

func (d *plane) contract(t require.TestingT) contract.Contract {
	c, err := contract.DecodeContract([]byte(d.text(t)))
	require.NoError(t, err)
	return c
}

// awaitEmpty waits until the file lists nothing.
func (d *plane) awaitEmpty() {
	d.t.Helper()
	require.EventuallyWithT(d.t, func(t *assert.CollectT) { assert.Empty(t, d.contract(t).Entries) }, patience, period)
}

// newPlanes starts a controller, a data plane in the pod w-0, and an agent with programs in w-1,
// and returns when they work on four partitions.
func newPlanes(t *testing.T, duration time.Duration) (c *cluster, d *plane, a, b *pod) {
	t.Helper()
	c = newCluster(t, duration)
	d, a = c.newPlane("w-0")
	b = c.agent("w-1")
	c.awaitJoined(a, b)
	c.create(4)
	c.await(4, a, b)
	return c, d, a, b
}

func (c *cluster) setTopic(topic string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"topic":%q}}`, topic)
	require.NoError(c.t, c.Patch(c.t.Context(), queues.New(c.namespace, queue, 0), client.RawPatch(types.MergePatchType, patch)))
}

// TestDataPlaneFollowsTheFile: it has the contract as the API server has it.
func TestDataPlaneFollowsTheFile(t *testing.T) {
	t.Parallel()
	c, d, a, b := newPlanes(t, long)
	assert.Equal(t, c.contract(t, a).Data["contract"], d.text(t))
	info, err := os.Stat(filepath.Join(d.Files, agent.ContractFile))
	require.NoError(t, err)
	assert.EqualValues(t, 0o644, info.Mode().Perm(), "the program may have another user")
	entries, err := os.ReadDir(d.Files)
	require.NoError(t, err)
	assert.Len(t, entries, 2)

	events := len(c.journal(t))
	require.NoError(t, c.Delete(t.Context(), c.contract(t, a)))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Contains(t, c.contract(t, a).Data["contract"], queue)
		assert.Equal(t, c.contract(t, a).Data["contract"], d.text(t))
	}, patience, period)
	c.await(4, a, b)
	assert.Len(t, c.journal(t), events, "the work went on")
	c.scale(6)
	c.await(6, a, b)
	require.NoError(t, a.Stop(stopTimeout))
	assert.Zero(t, a.ExitCode())
	assert.Empty(t, c.holder(t, a))
	assert.Empty(t, d.contract(t).Entries)
	c.await(6, b)
}

// TestDataPlaneMustAcknowledge: a changed payload counts only when the data plane has it.
func TestDataPlaneMustAcknowledge(t *testing.T) {
	t.Parallel()
	c, d, a, b := newPlanes(t, long)
	events := len(c.journal(t))
	d.Mute.Store(true)
	c.setTopic("changed")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Contains(t, c.lease(t, a).Annotations["placement.nodekeeper.dev/acknowledged"], "not acknowledged by the data plane")
		status, reason := c.condition(t, "Ready")
		assert.Equal(t, "False", status)
		assert.Equal(t, "Failing", reason)
	}, patience, period)
	assert.Contains(t, d.text(t), `"topic":"changed"`)
	d.Mute.Store(false)
	c.await(4, a, b)
	assert.Len(t, c.journal(t), events, "the work went on")
}

// TestLeaseIsReleasedAfterTheDataPlaneHasStopped, and not before.
func TestLeaseIsReleasedAfterTheDataPlaneHasStopped(t *testing.T) {
	t.Parallel()
	c, d, a, b := newPlanes(t, long)
	d.Stubborn.Store(true)
	require.NoError(t, a.Signal(syscall.SIGTERM))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		answer, err := os.ReadFile(filepath.Join(d.Files, agent.AcknowledgedFile))
		require.NoError(t, err)
		assert.Contains(t, string(answer), "stopping")
	}, patience, period)
	renewed := c.lease(t, a).Spec.RenewTime
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.NotEqual(t, renewed, c.lease(t, a).Spec.RenewTime) }, patience, period)
	assert.NotEmpty(t, c.holder(t, a))
	d.Stubborn.Store(false)
	require.NoError(t, a.Stop(stopTimeout))
	assert.Zero(t, a.ExitCode())
	assert.Empty(t, c.holder(t, a))
	c.await(4, b)
}

// TestDataPlaneThatHasEnded does not keep its agent from leaving.
func TestDataPlaneThatHasEnded(t *testing.T) {
	t.Parallel()
	c, d, a, b := newPlanes(t, short)
	d.kill()
	require.NoError(t, a.Stop(stopTimeout))
	assert.Zero(t, a.ExitCode())
	assert.Empty(t, c.holder(t, a))
	c.await(4, b)
}

// TestRestartedAgentInterruptsNoDataPlane: the same incarnation goes on with the same epochs, and
// what was acknowledged to the former process does not count.
func TestRestartedAgentInterruptsNoDataPlane(t *testing.T) {
	t.Parallel()
	c, d, a, b := newPlanes(t, long)
	holder, events, generation := c.holder(t, a), len(c.journal(t)), d.contract(t).Generation
	require.NoError(t, a.Kill())
	a = c.restartWith(d, a)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Greater(t, d.contract(t).Generation, generation)
	}, patience, period)
	c.await(4, a, b)
	assert.Equal(t, holder, c.holder(t, a))
	assert.Len(t, c.journal(t), events)
	c.scale(5)
	c.await(5, a, b)
}

// TestFrozenAgentStopsItsDataPlane by the age of the file, so another pod may have the work.
func TestFrozenAgentStopsItsDataPlane(t *testing.T) {
	t.Parallel()
	c, _, a, b := newPlanes(t, short)
	holder := c.holder(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, a.Freeze(ctx))
	c.await(4, b)
	require.NoError(t, a.Signal(syscall.SIGCONT))
	c.await(4, a, b)
	assert.NotEqual(t, holder, c.holder(t, a))
}

// TestLostLeaseEmptiesTheFile: the agent joins again when the data plane has stopped.
func TestLostLeaseEmptiesTheFile(t *testing.T) {
	t.Parallel()
	c, d, a, b := newPlanes(t, short)
	holder := c.holder(t, a)
	d.Stubborn.Store(true)
	require.NoError(t, c.Delete(t.Context(), c.lease(t, a)))
	d.awaitEmpty()
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), types.NamespacedName{Namespace: c.namespace, Name: a.name}, &coordinationv1.Lease{})))
	d.Stubborn.Store(false)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.NotEqual(t, holder, c.holder(t, a)) }, patience, period)
	c.await(4, a, b)
	assert.Equal(t, c.holder(t, a), d.contract(t).Incarnation)
}

// TestCutOffAgentEmptiesTheFile, and goes on as the same incarnation.
func TestCutOffAgentEmptiesTheFile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, short)
	var d *plane
	var a *pod
	var proxy *faultproxy.Proxy
	c.through(func(p *faultproxy.Proxy) {
		proxy = p
		d, a = c.newPlane("w-0")
	})
	c.awaitJoined(a)
	c.create(2)
	c.await(2, a)
	holder := c.holder(t, a)
	require.NoError(t, c.controller.Kill()) // no takeover, however slow this machine is
	heal := proxy.Inject(faultproxy.Refuse{Share: 1, Code: 503})
	d.awaitEmpty()
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, journal.Owners(c.journal(t), queue)) }, patience, period)
	heal()
	c.startController()
	c.await(2, a)
	assert.Equal(t, holder, c.holder(t, a))
}

// TestDirectoryForFiles must exist, and belong to one agent.
func TestDirectoryForFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	d, a := c.newPlane("w-0")
	c.awaitJoined(a)
	for dir, message := range map[string]string{"/no/such": "no such file or directory", d.Files: "another agent uses it"} {
		p := c.agentWith(&pod{name: "w-1", uid: uuid.NewUUID()}, "--file="+dir)
		require.Eventually(t, func() bool { return isDone(p) }, patience, period)
		assert.Equal(t, 1, p.ExitCode())
		lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
		assert.Contains(t, lines[len(lines)-1], message)
	}
}

func isDone(p *pod) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}
