package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
)

const (
	period, patience = 50 * time.Millisecond, 3 * time.Minute
	// long is a lease duration with which no agent loses its Lease on a busy machine. short is for
	// tests that wait until a Lease is taken over: an agent that loses its Lease goes on soon, in
	// the same pod.
	long, short = agent.DefaultLeaseDuration, 5 * time.Second
	// stopTimeout is less than the grace period of a pod.
	stopTimeout = 25 * time.Second
	pool, queue = "worker", "orders"
	// workEnv makes the binary of this test a worker: it is the directory of the journal.
	workEnv  = "PLACEMENT_TEST_JOURNAL"
	parallel = 8
)

// shared is the API server of all tests. Each has a namespace of its own.
var shared *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if dir := os.Getenv(workEnv); dir != "" {
		if err := journal.Work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if err := controlplane.Parallel(parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) {
		shared = c
		if err := queues.Install(context.Background(), c.Config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}))
}

// cluster is a namespace with a controller, and a directory with a journal.
type cluster struct {
	client.Client

	t          *testing.T
	kubeconfig string
	namespace  string
	dir        string
	duration   time.Duration // of the Leases of agents
	kinds      string        // of the pool besides Queue, for --pool-config
	controller *programs.Program
}

// newCluster starts a controller for a namespace of its own. Agents have a lease duration.
func newCluster(t *testing.T, duration time.Duration) *cluster {
	t.Helper()
	return clusterOn(t, shared, duration)
}

// ownPlane starts a control plane that only this test uses, so that it can stop its API server.
func ownPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	require.NoError(t, queues.Install(t.Context(), plane.Config))
	return plane
}

func clusterOn(t *testing.T, plane *controlplane.ControlPlane, duration time.Duration) *cluster {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	s := &cluster{Client: c, t: t, kubeconfig: plane.Kubeconfig, namespace: controlplane.Namespace(t, c), dir: t.TempDir(), duration: duration}
	s.startController()
	return s
}

func (c *cluster) startController() {
	c.t.Helper()
	c.controller = c.launch(nil, "controller", c.controllerArgs("--leader-elect=false")...)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, c.controller.WaitReady(ctx))
}

func (c *cluster) controllerArgs(more ...string) []string {
	c.t.Helper()
	pools, err := queues.WritePools(c.dir, c.namespace, pool, c.kinds)
	require.NoError(c.t, err)
	return append([]string{
		"controller", "--kubeconfig=" + c.kubeconfig, "--pool-config=" + pools,
		"--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0",
	}, more...)
}

// launch starts the program. It ends with the test.
func (c *cluster) launch(env []string, identity string, args ...string) *programs.Program {
	c.t.Helper()
	p, err := programs.Launch(env, "placement", identity, args...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		assert.NoError(c.t, p.Stop(stopTimeout))
		assert.NotContains(c.t, p.Output(), "DATA RACE") // of a program that was built with the race detector
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", identity, p.Output())
		}
	})
	return p
}

// pod is a pod with an agent.
type pod struct {
	*programs.Program

	name string
	uid  types.UID
}

// agent starts an agent in a new pod of that name.
func (c *cluster) agent(name string) *pod {
	c.t.Helper()
	return c.restart(&pod{name: name, uid: uuid.NewUUID()})
}

// restart starts an agent in a pod, as after a restart of its container.
func (c *cluster) restart(p *pod) *pod {
	c.t.Helper()
	self, err := os.Executable()
	require.NoError(c.t, err)
	return c.agentOf(p, self)
}

// agentOf starts an agent with a program.
func (c *cluster) agentOf(p *pod, program ...string) *pod {
	c.t.Helper()
	return c.agentWith(p, append([]string{"--exec", "--"}, program...)...)
}

// agentWith starts an agent with more arguments.
func (c *cluster) agentWith(p *pod, more ...string) *pod {
	c.t.Helper()
	args := []string{
		"agent", "--kubeconfig=" + c.kubeconfig, "--namespace=" + c.namespace, "--pool=" + pool, "--pod=" + p.name, "--pod-uid=" + string(p.uid),
		"--lease-duration=" + c.duration.String(),
	}
	env := []string{workEnv + "=" + c.dir, journal.PodEnv + "=" + p.name}
	return &pod{c.launch(env, p.name, append(args, more...)...), p.name, p.uid}
}

// through makes the programs that are started meanwhile use a proxy.
func (c *cluster) through(start func(*faultproxy.Proxy)) {
	c.t.Helper()
	p, err := faultproxy.Start(shared.Config)
	require.NoError(c.t, err)
	c.t.Cleanup(p.Close)
	direct := c.kubeconfig
	c.kubeconfig = filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(p.Kubeconfig(), c.kubeconfig))
	start(p)
	c.kubeconfig = direct
}

// create creates the Queue.
func (c *cluster) create(partitions int64) {
	c.t.Helper()
	require.NoError(c.t, c.Create(c.t.Context(), queues.New(c.namespace, queue, partitions)))
}

// scale changes the number of partitions.
func (c *cluster) scale(partitions int64) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"partitions":%d}}`, partitions)
	require.NoError(c.t, c.Patch(c.t.Context(), queues.New(c.namespace, queue, 0), client.RawPatch(types.MergePatchType, patch)))
}

// condition returns the status and the reason of a condition of the Queue.
func (c *cluster) condition(t require.TestingT, kind string) (status, reason string) {
	q := queues.New(c.namespace, queue, 0)
	require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(q), q))
	conditions, _, err := unstructured.NestedSlice(q.Object, "status", "conditions")
	require.NoError(t, err)
	for _, one := range conditions {
		if one, ok := one.(map[string]any); ok && one["type"] == kind {
			return fmt.Sprint(one["status"]), fmt.Sprint(one["reason"])
		}
	}
	return "", ""
}

// journal returns the journal so far. It fails if the work has overlapped.
func (c *cluster) journal(t require.TestingT) []journal.Entry {
	all, err := journal.Read(c.dir)
	require.NoError(t, err)
	require.NoError(t, journal.Check(all))
	return all
}

// await waits until the partitions are worked on by exactly these pods, and the Queue is Ready. It
// returns the pods by partition.
func (c *cluster) await(partitions int, pods ...*pod) (owners map[int32]string) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		owners = journal.Owners(c.journal(t), queue)
		assert.Len(t, owners, partitions)
		has := map[string]bool{}
		for _, name := range owners {
			has[name] = true
		}
		for _, p := range pods {
			assert.True(t, has[p.name], "%s works on nothing: %v", p.name, owners)
		}
		assert.Len(t, has, len(pods), "%v", owners)
		status, reason := c.condition(t, "Acknowledged")
		assert.Equal(t, "True", status, reason)
		status, reason = c.condition(t, "Ready")
		assert.Equal(t, "True", status, reason)
	}, patience, period)
	return owners
}

// awaitJoined waits until pods have Leases, so that work is spread over all of them.
func (c *cluster) awaitJoined(pods ...*pod) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		for _, p := range pods {
			assert.NotEmpty(t, c.holder(t, p))
			// The controller has seen the Lease once it has created the contract.
			cm := &corev1.ConfigMap{}
			assert.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: p.name}, cm))
		}
	}, patience, period)
}

// newWork starts a controller and agents in pods w-0, w-1 and so on, and returns when they work on
// the partitions of a Queue. It returns the pods, and their names by partition.
func newWork(t *testing.T, duration time.Duration, partitions, agents int) (c *cluster, pods []*pod, owners map[int32]string) {
	t.Helper()
	c = newCluster(t, duration)
	for i := range agents {
		pods = append(pods, c.agent(fmt.Sprintf("w-%d", i)))
	}
	c.awaitJoined(pods...)
	c.create(int64(partitions))
	return c, pods, c.await(partitions, pods...)
}

// setUnschedulable makes the work of a pod move elsewhere, if it is "true", or allows work again, if
// it is null.
func (c *cluster) setUnschedulable(p *pod, value string) {
	c.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"placement.nodekeeper.dev/unschedulable":%s}}}`, value)
	require.NoError(c.t, c.Patch(c.t.Context(), c.lease(c.t, p), client.RawPatch(types.MergePatchType, patch)))
}

// lease returns the Lease of a pod.
func (c *cluster) lease(t require.TestingT, p *pod) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: p.name}, l))
	return l
}

func (c *cluster) holder(t require.TestingT, p *pod) string {
	l := c.lease(t, p)
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// pids returns the processes that a pod has started.
func pids(all []journal.Entry, p *pod) (list []int) {
	for _, e := range all {
		if e.Pod == p.name && e.Event == journal.Start {
			list = append(list, e.PID)
		}
	}
	return list
}

// contract returns the ConfigMap of a pod.
func (c *cluster) contract(t require.TestingT, p *pod) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: p.name}, cm))
	return cm
}

// readPIDs returns the process id in a file.
func readPIDs(t *testing.T, file string) []int {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	return []int{pid}
}
