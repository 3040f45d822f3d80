package program

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// of returns the partitions of a pod.
func of(owners map[int32]string, p *pod) (list []int32) {
	for _, index := range slices.Sorted(maps.Keys(owners)) {
		if owners[index] == p.name {
			list = append(list, index)
		}
	}
	return list
}

// assertKept asserts that each partition is where it was, except for those of one pod.
func assertKept(t *testing.T, before, after map[int32]string, except *pod) {
	t.Helper()
	for index, name := range before {
		if name != except.name {
			assert.Equal(t, name, after[index], "partition %d", index)
		}
	}
}

func TestWorkIsSpreadScaledAndStopped(t *testing.T) {
	t.Parallel()
	c, pods, owners := newWork(t, long, 6, 3)
	a, b, d := pods[0], pods[1], pods[2]
	for _, p := range []*pod{a, b, d} {
		assert.Len(t, of(owners, p), 2)
	}
	c.scale(9)
	grown := c.await(9, a, b, d)
	for index, name := range owners {
		assert.Equal(t, name, grown[index])
	}
	c.scale(3)
	c.await(3, a, b, d)
	require.NoError(t, c.Delete(t.Context(), queues.New(c.namespace, queue, 0)))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, journal.Owners(c.journal(t), queue)) }, patience, period)
}

func TestKilledAgentLosesItsWorkAndNothingElse(t *testing.T) {
	t.Parallel()
	c, pods, before := newWork(t, short, 6, 3)
	a, b, d := pods[0], pods[1], pods[2]
	require.NoError(t, b.Kill())
	awaitGone(t, pids(c.journal(t), b))
	assertKept(t, before, c.await(6, a, d), b)
}

// awaitGone waits until processes have ended.
func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, pid := range pids {
			assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		}
	}, patience, period)
}

func TestAgentThatEndsHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	c, pods, before := newWork(t, long, 4, 2)
	a, b := pods[0], pods[1]
	holder := c.holder(t, a)
	require.NoError(t, a.Stop(stopTimeout))
	assert.Zero(t, a.ExitCode())
	l := c.lease(t, a)
	assert.Empty(t, *l.Spec.HolderIdentity)
	assert.Equal(t, holder, l.Annotations["placement.nodekeeper.dev/ended"])
	assertKept(t, before, c.await(4, b), a)
	stops := 0
	for _, e := range c.journal(t) {
		if e.Pod == a.name && e.Event == journal.Stop {
			stops++
		}
	}
	assert.Equal(t, 2, stops, "its programs had time to end in order")
}

// TestFrozenAgentDoesNoHarm: its guard ends the programs, so another pod may have their work. When
// the agent goes on, it joins again.
func TestFrozenAgentDoesNoHarm(t *testing.T) {
	t.Parallel()
	c, pods, before := newWork(t, short, 4, 2)
	a, b := pods[0], pods[1]
	holder := c.holder(t, a)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, a.Freeze(ctx))
	assertKept(t, before, c.await(4, b), a)
	require.NoError(t, a.Signal(syscall.SIGCONT))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		now := c.holder(t, a)
		assert.NotEmpty(t, now)
		assert.NotEqual(t, holder, now, "it was taken over")
	}, patience, period)
	c.await(4, a, b) // rebalanced
}

// TestRestartedAgentAdopts: a process that starts again in the same pod is the same incarnation,
// and the programs of the former process have ended before new ones start.
func TestRestartedAgentAdopts(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, long, 3, 1)
	a := pods[0]
	holder := c.holder(t, a)
	require.NoError(t, a.Kill())
	a = c.restart(a)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Len(t, pids(c.journal(t), a), 6) }, patience, period)
	c.await(3, a)
	assert.Equal(t, holder, c.holder(t, a))
}

func TestNewLeaderMovesNothing(t *testing.T) {
	t.Parallel()
	c, pods, before := newWork(t, long, 4, 2)
	a, b := pods[0], pods[1]
	require.NoError(t, c.controller.Kill())
	starts := len(c.journal(t))
	c.startController()
	assert.Equal(t, before, c.await(4, a, b))
	assert.Len(t, c.journal(t), starts)
}

func TestDeletedLeaseIsLost(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, short, 2, 1)
	a := pods[0]
	holder := c.holder(t, a)
	require.NoError(t, c.Delete(t.Context(), c.lease(t, a)))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.GreaterOrEqual(t, len(pids(c.journal(t), a)), 4) }, patience, period)
	c.await(2, a)
	assert.NotEqual(t, holder, c.holder(t, a), "it joined with a new run")
}

// TestLeaseThatIsCreatedAgainIsAnother: a copy of a deleted Lease names an incarnation that may
// have ended, so the agent joins with a new run.
func TestLeaseThatIsCreatedAgainIsAnother(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, long, 2, 1)
	a := pods[0]
	old := c.lease(t, a)
	again := old.DeepCopy()
	again.ResourceVersion, again.UID = "", ""
	require.NoError(t, c.Delete(t.Context(), old))
	require.NoError(t, c.Create(t.Context(), again))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		now := c.lease(t, a)
		assert.NotEqual(t, *old.Spec.HolderIdentity, *now.Spec.HolderIdentity)
		assert.Equal(t, string(now.UID), now.Annotations[contract.LeaseAnnotation])
		assert.Len(t, pids(c.journal(t), a), 4)
	}, patience, period)
	c.await(2, a)
}

// TestEditedLeaseIsCorrected: a shorter duration moves no work, and the next renewal corrects it.
func TestEditedLeaseIsCorrected(t *testing.T) {
	t.Parallel()
	c, pods, before := newWork(t, long, 4, 2)
	a, b := pods[0], pods[1]
	holder := c.holder(t, a)
	require.NoError(t, c.Patch(t.Context(), c.lease(t, a), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":1}}`))))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.EqualValues(t, long/time.Second, *c.lease(t, a).Spec.LeaseDurationSeconds)
	}, patience, period)
	assert.Equal(t, before, c.await(4, a, b))
	assert.Equal(t, holder, c.holder(t, a))
	assert.Len(t, c.journal(t), 4)
}

// TestContractIsMadeAgain: a contract that is deleted or garbled is replaced, and the work goes on
// meanwhile.
func TestContractIsMadeAgain(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, long, 2, 1)
	a := pods[0]
	for _, harm := range []func(){
		func() { require.NoError(t, c.Delete(t.Context(), c.contract(t, a))) },
		func() {
			cm := c.contract(t, a)
			cm.Data["contract"] = "{"
			require.NoError(t, c.Update(t.Context(), cm))
		},
	} {
		old := c.contract(t, a).UID
		harm()
		require.EventuallyWithT(t, func(ct *assert.CollectT) {
			cm := c.contract(ct, a)
			assert.NotEqual(ct, old, cm.UID)
			assert.Contains(ct, cm.Data["contract"], `"name":"orders"`)
		}, patience, period)
		c.await(2, a)
	}
	c.scale(3) // the agent follows the new contract
	c.await(3, a)
	assert.Len(t, pids(c.journal(t), a), 3)
}

// TestProgramThatFails: the resource is not Ready, and the message has the last line of the
// program.
func TestProgramThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	p := c.agentOf(&pod{name: "w-0", uid: uuid.NewUUID()}, "sh", "-c", "echo no broker; exit 3")
	c.awaitJoined(p)
	c.create(1)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, reason := c.condition(t, "Ready")
		assert.Equal(t, "False", status)
		assert.Equal(t, "Failing", reason)
		q := queues.New(c.namespace, queue, 0)
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(q), q))
		assert.Contains(t, q.Object["status"], "conditions")
		assert.Contains(t, c.lease(t, p).Annotations["placement.nodekeeper.dev/acknowledged"], "no broker (exit status 3)")
	}, patience, period)
}

// TestProgramThatIgnoresSIGTERM: it is killed after five seconds, with what it has started.
func TestProgramThatIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	const deaf = `trap "" TERM; sleep 1000 & echo $! > "$0"; while :; do sleep 1000; done`
	file := c.dir + "/pid"
	p := c.agentOf(&pod{name: "w-0", uid: uuid.NewUUID()}, "sh", "-c", deaf, file)
	c.awaitJoined(p)
	c.create(1)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		status, _ := c.condition(t, "Ready")
		assert.Equal(t, "True", status)
		assert.FileExists(t, file)
	}, patience, period)
	require.NoError(t, p.Stop(stopTimeout))
	assert.Zero(t, p.ExitCode())
	awaitGone(t, readPIDs(t, file))
}

// TestAPIServerIsAway: all work stops in time, nothing moves, and everything goes on without help.
func TestAPIServerIsAway(t *testing.T) {
	t.Parallel()
	plane := ownPlane(t)
	c := clusterOn(t, plane, short)
	a, b := c.agent("w-0"), c.agent("w-1")
	c.awaitJoined(a, b)
	c.create(4)
	before := c.await(4, a, b)
	holder, renewed := c.holder(t, a), c.lease(t, a).Spec.RenewTime.Time
	require.NoError(t, plane.StopServer(controlplane.APIServer))
	awaitGone(t, append(pids(c.journal(t), a), pids(c.journal(t), b)...))
	// The Leases look dead when it is back.
	require.Eventually(t, func() bool { return time.Since(renewed) > 3*short }, patience, period)
	require.NoError(t, plane.StartServer(controlplane.APIServer))
	assert.Equal(t, before, c.await(4, a, b))
	assert.Equal(t, holder, c.holder(t, a))
	c.scale(6)
	c.await(6, a, b)
	assert.NotContains(t, a.Output(), "too old resource version", "it watches the contract again")
}

// TestFrozenGroupDoesNoHarm: the guard is not in the process group of the agent.
func TestFrozenGroupDoesNoHarm(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, short, 4, 2)
	a, b := pods[0], pods[1]
	require.NoError(t, syscall.Kill(-a.PID(), syscall.SIGSTOP)) // programs.Launch gives it a group
	t.Cleanup(func() { _ = syscall.Kill(-a.PID(), syscall.SIGCONT) })
	c.await(4, b)
	require.NoError(t, syscall.Kill(-a.PID(), syscall.SIGCONT))
	c.await(4, a, b)
}

// TestOthersAreLeftAlone: an agent waits for a Lease that another pod holds, and neither agent nor
// controller changes what does not belong to the pool.
func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	holder, seconds := "other/1", int32(3600)
	held := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: "held", Labels: map[string]string{contract.PoolLabel: pool},
			Annotations: map[string]string{"placement.nodekeeper.dev/unschedulable": "true"}, // so that it gets no work
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	}
	foreign := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "foreign"}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "settings"}, Data: map[string]string{"a": "b"}}
	for _, o := range []client.Object{held, foreign, cm} {
		require.NoError(t, c.Create(t.Context(), o))
	}
	for name, message := range map[string]string{"held": "another pod of this name", "foreign": "does not belong to the pool"} {
		p := c.agent(name)
		require.Eventually(t, func() bool { return strings.Contains(p.Output(), message) }, patience, period)
	}
	a, b := c.agent("settings"), c.agent("w-0")
	require.Eventually(t, func() bool { return strings.Contains(c.controller.Output(), "does not belong to the pool") }, patience, period)
	c.awaitJoined(b)
	c.create(4)
	c.await(4, b)
	assert.NotEmpty(t, c.holder(t, a))
	for _, o := range []client.Object{held, foreign, cm} {
		version := o.GetResourceVersion()
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		assert.Equal(t, version, o.GetResourceVersion(), "%T %s", o, o.GetName())
	}
}

// TestUnschedulablePod: a user annotates the Lease, and the renewals keep that.
func TestUnschedulablePod(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, long, 4, 2)
	a, b := pods[0], pods[1]
	c.setUnschedulable(a, `"true"`)
	c.await(4, b)
	c.setUnschedulable(a, `null`)
	c.await(4, a, b)
}

// TestCalmPoolWritesNothing but renewals.
func TestCalmPoolWritesNothing(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, short, 3, 1)
	a := pods[0]
	q := queues.New(c.namespace, queue, 0)
	var versions []string
	for range 2 {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(q), q))
		versions = append(versions, q.GetResourceVersion()+" "+c.contract(t, a).ResourceVersion)
		renewed, renewals := c.lease(t, a).Spec.RenewTime, 0
		require.Eventually(t, func() bool { // a pass is due before each Lease expires
			now := c.lease(t, a).Spec.RenewTime
			if !now.Equal(renewed) {
				renewed, renewals = now, renewals+1
			}
			return renewals == 3
		}, patience, period)
	}
	assert.Equal(t, versions[0], versions[1])
}

// TestProgramIsLean: the program is in every pod of a pool.
func TestProgramIsLean(t *testing.T) {
	t.Parallel()
	path, err := programs.Path("placement")
	require.NoError(t, err)
	info, err := buildinfo.ReadFile(path)
	require.NoError(t, err)
	for _, dep := range info.Deps {
		assert.NotEqual(t, "sigs.k8s.io/controller-runtime", dep.Path)
	}
}

// TestAgentNeedsFewRights: on Leases and ConfigMaps of its namespace.
func TestAgentNeedsFewRights(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	user := "agent-" + c.namespace
	objects := []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "watch"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		},
	}
	for _, o := range objects {
		require.NoError(t, c.Create(t.Context(), o))
	}
	var err error
	c.kubeconfig, err = shared.KubeconfigFor(user)
	require.NoError(t, err)
	a := c.agent("w-0")
	c.awaitJoined(a)
	c.create(2)
	c.await(2, a)
	c.scale(3)
	c.await(3, a)
	require.NoError(t, a.Stop(stopTimeout))
	assert.Zero(t, a.ExitCode())
}

// kind creates a CRD like that of the Queue, with changes of its version.
func (c *cluster) kind(name string, change func(version map[string]any)) schema.GroupVersionKind {
	c.t.Helper()
	crd, err := queues.Load("crd.yaml")
	require.NoError(c.t, err)
	kind := schema.GroupVersionKind{Group: c.namespace + ".example.com", Version: "v1", Kind: name}
	lower := strings.ToLower(name)
	crd.SetName(lower + "s." + kind.Group)
	require.NoError(c.t, unstructured.SetNestedField(crd.Object, kind.Group, "spec", "group"))
	names := map[string]any{"kind": name, "listKind": name + "List", "plural": lower + "s", "singular": lower}
	require.NoError(c.t, unstructured.SetNestedMap(crd.Object, names, "spec", "names"))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	require.NoError(c.t, err)
	change(versions[0].(map[string]any))
	require.NoError(c.t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	require.NoError(c.t, c.Create(c.t.Context(), crd))
	return kind
}

// use restarts the controller with more kinds.
func (c *cluster) use(kinds ...schema.GroupVersionKind) {
	c.t.Helper()
	require.NoError(c.t, c.controller.Kill())
	var texts []string
	for _, kind := range kinds {
		texts = append(texts, "{apiVersion: "+kind.GroupVersion().String()+", kind: "+kind.Kind+", replicasPath: spec.partitions}")
	}
	c.kinds = strings.Join(texts, ", ")
	c.startController()
}

// TestKindThatCannotBeUsed: it does not exist yet, or has no status subresource. The other kinds of
// the pool are not disturbed, and nothing is written to it.
func TestKindThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	bare := c.kind("Bare", func(version map[string]any) { delete(version, "subresources") })
	late := schema.GroupVersionKind{Group: bare.Group, Version: "v1", Kind: "Late"}
	c.use(bare, late)
	a := c.agent("w-0")
	c.awaitJoined(a)
	q := queues.New(c.namespace, "bare", 2)
	q.SetGroupVersionKind(bare)
	require.Eventually(t, func() bool { return c.Create(t.Context(), q) == nil }, patience, period)
	c.create(2)
	c.await(2, a)
	require.Eventually(t, func() bool {
		return strings.Contains(c.controller.Output(), "no status subresource: add") && strings.Contains(c.controller.Output(), "no namespaced kind Late")
	}, patience, period)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(q), q))
	assert.EqualValues(t, 1, q.GetGeneration())
	assert.NotContains(t, q.Object, "status")

	c.kind("Late", func(map[string]any) {})
	q = queues.New(c.namespace, "late", 1)
	q.SetGroupVersionKind(late)
	require.Eventually(t, func() bool { return c.Create(t.Context(), q) == nil }, patience, period)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Len(t, journal.Owners(c.journal(t), "late"), 1) }, patience, period)
}

// TestSchemaThatPrunes: the API server drops most of the status. The pod gets no work, and the
// controller stops writing.
func TestSchemaThatPrunes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, long)
	few := map[string]any{"placements": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{
		"podName": map[string]any{"type": "string"}, "vreplicas": map[string]any{"type": "integer"},
	}}}}
	kind := c.kind("Pruned", func(version map[string]any) {
		require.NoError(t, unstructured.SetNestedMap(version, few, "schema", "openAPIV3Schema", "properties", "status", "properties"))
	})
	c.use(kind)
	a := c.agent("w-0")
	c.awaitJoined(a)
	c.create(2) // of the other kind, which is not disturbed
	q := queues.New(c.namespace, "pruned", 2)
	q.SetGroupVersionKind(kind)
	require.Eventually(t, func() bool { return c.Create(t.Context(), q) == nil }, patience, period) // once it is served
	require.Eventually(t, func() bool { return strings.Contains(c.controller.Output(), "does not store the whole status") }, patience, period)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(q), q))
	version := q.GetResourceVersion()
	c.scale(3) // passes go on
	c.await(3, a)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(q), q))
	assert.Equal(t, version, q.GetResourceVersion())
	assert.Equal(t, map[string]any{"placements": []any{map[string]any{"podName": "w-0", "vreplicas": int64(2)}}}, q.Object["status"])
	assert.NotContains(t, c.contract(t, a).Data["contract"], string(q.GetUID()))
}

// TestGuardIsKilled: the kernel ends the programs, and the agent ends without releasing its Lease,
// because it does not know what still runs.
func TestGuardIsKilled(t *testing.T) {
	t.Parallel()
	c, pods, _ := newWork(t, long, 2, 1)
	a := pods[0]
	started := pids(c.journal(t), a)
	holder := c.holder(t, a)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", started[0]))
	require.NoError(t, err)
	var state string
	var guard int
	_, err = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &guard)
	require.NoError(t, err)
	require.NotEqual(t, a.PID(), guard)
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	awaitGone(t, started)
	select {
	case <-a.Done():
		assert.Equal(t, 1, a.ExitCode())
	case <-time.After(patience):
		require.Fail(t, "the agent does not end")
	}
	assert.Equal(t, holder, c.holder(t, a))
	a = c.restart(a)
	c.await(2, a)
}
