package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The walk has more work than the example.
const placementWorkers, placementQueues, queuePartitions = 6, 4, 12

// placedCluster is a cluster with placement and its example.
type placedCluster struct {
	*realCluster

	t *testing.T // of the step
	// first is a node that stays: the log of the queue is on it.
	first string
	// now is who works on what since the last step.
	now placed
}

// TestPlacement walks through what happens to a pool: each step ends with all messages done once and
// in order.
func TestPlacement(t *testing.T) {
	r := connect(t)
	p := &placedCluster{realCluster: r, t: t, first: r.nodes[0]}
	defer r.removePlacement(t)
	for _, step := range []struct {
		name string
		run  func(*placedCluster)
	}{
		{"six pods share four Queues of twelve partitions", (*placedCluster).install},
		{"the StatefulSet is rolled, and nothing moves", (*placedCluster).roll},
		{"the leading controller is killed, and nothing moves", (*placedCluster).killLeader},
		{"the pods become three, and six again", (*placedCluster).scale},
		{"a node is drained, and nothing moves", (*placedCluster).drain},
		{"a kubelet is stopped, and nothing moves", (*placedCluster).stopKubelet},
		{"a node dies with its pods", (*placedCluster).loseNode},
		{"a Queue is deleted and created again at once", (*placedCluster).again},
		{"the pods are those of a Deployment", (*placedCluster).deployment},
		{"after uninstalling, nothing is left", (*placedCluster).uninstall},
	} {
		if !t.Run(step.name, func(t *testing.T) { p.t = t; step.run(p) }) {
			t.FailNow() // the other steps would go on from somewhere else
		}
	}
}

// try runs kubectl, and returns what it prints.
func (p *placedCluster) try(stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), "kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func queueNames() (names []string) {
	for i := range placementQueues {
		names = append(names, fmt.Sprintf("q%d", i))
	}
	return names
}

func (p *placedCluster) create(queue string) {
	p.t.Helper()
	out, err := p.try(fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Queue","metadata":{"name":%q,"namespace":%q},"spec":{"partitions":%d}}`,
		queue, shop, queuePartitions), "apply", "-f", "-")
	require.NoError(p.t, err, out)
}

func (p *placedCluster) install() {
	p.kubectl(p.t, "apply", "--server-side", "-k", placementDir)
	p.kubectl(p.t, "wait", "--for=condition=Established", "crd/queues.example.com")
	p.kubectl(p.t, "patch", "deployment", "queue", "-n", shop, "-p",
		fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":%q}}}}}`, p.first))
	p.kubectl(p.t, "scale", "statefulset", "worker", "-n", shop, fmt.Sprintf("--replicas=%d", placementWorkers))
	p.kubectl(p.t, "rollout", "status", "deployment/queue", "-n", shop, "--timeout="+patience.String())
	p.eventually(p.t, func(c *assert.CollectT) {
		contracts := &corev1.ConfigMapList{}
		require.NoError(c, p.client.List(p.t.Context(), contracts, client.InNamespace(shop), client.HasLabels{"placement.nodekeeper.dev/pool"}))
		assert.Len(c, contracts.Items, placementWorkers)
	}, "all pods have joined")
	for _, name := range queueNames() {
		p.create(name)
	}
	p.works(placementWorkers)
}

// placed is which pod has which partitions of a Queue, by the name of the Queue and the pod.
type placed map[string]map[string]string

// works waits until all Queues are Ready on so many pods, adds messages, and waits until they are
// done. It returns who works on what.
func (p *placedCluster) works(pods int) placed {
	p.t.Helper()
	var found placed
	p.eventually(p.t, func(c *assert.CollectT) { found = p.look(c, pods) }, fmt.Sprintf("the Queues are Ready on %d pods", pods))
	for _, name := range queueNames() {
		out, err := p.try("", "exec", "-n", shop, "deploy/queue", "--", "/queue", "add", fmt.Sprintf("--partitions=%d", queuePartitions), "--count=120", name)
		require.NoError(p.t, err, out)
	}
	out, err := p.try("", "exec", "-n", shop, "deploy/queue", "--", "/queue", "check", "--wait="+patience.String())
	require.NoError(p.t, err, out)
	assert.Contains(p.t, out, "no two owners took turns")
	p.now = found
	return found
}

// look returns who works on what, if all Queues are Ready.
func (p *placedCluster) look(t require.TestingT, pods int) placed {
	out, err := p.try("", "get", "queues", "-n", shop, "-o", "json")
	require.NoError(t, err, out)
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				ReadyVReplicas int
				Placements     []struct{ PodName, Indexes string }
				Releasing      []any
				Conditions     []struct{ Type, Status, Reason string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Items, placementQueues)
	found, on := placed{}, map[string]bool{}
	for _, q := range list.Items {
		found[q.Metadata.Name] = map[string]string{}
		require.Equal(t, queuePartitions, q.Status.ReadyVReplicas, q.Metadata.Name)
		require.Empty(t, q.Status.Releasing, q.Metadata.Name)
		require.Len(t, q.Status.Conditions, 3, q.Metadata.Name)
		for _, condition := range q.Status.Conditions {
			require.Equal(t, "True", condition.Status, "%s: %s", q.Metadata.Name, condition.Reason)
		}
		for _, share := range q.Status.Placements {
			found[q.Metadata.Name][share.PodName], on[share.PodName] = share.Indexes, true
		}
	}
	require.Len(t, on, pods)
	return found
}

func (p *placedCluster) roll() {
	before := p.now
	p.kubectl(p.t, "rollout", "restart", "statefulset/worker", "-n", shop)
	p.kubectl(p.t, "rollout", "status", "statefulset/worker", "-n", shop, "--timeout="+patience.String())
	assert.Equal(p.t, before, p.works(placementWorkers))
}

func (p *placedCluster) killLeader() {
	before := p.now
	out, err := p.try("", "get", "lease", "placement-controller", "-n", placementSystem, "-o", "jsonpath={.spec.holderIdentity}")
	require.NoError(p.t, err, out)
	name := out[:max(0, strings.LastIndex(out, "-"))] // the name of the pod, and a random suffix
	p.kubectl(p.t, "delete", "pod", name, "-n", placementSystem, "--force", "--grace-period=0")
	assert.Equal(p.t, before, p.works(placementWorkers))
}

func (p *placedCluster) scale() {
	before := p.now
	p.kubectl(p.t, "scale", "statefulset", "worker", "-n", shop, "--replicas=3")
	after := p.works(placementWorkers / 2)
	p.kubectl(p.t, "scale", "statefulset", "worker", "-n", shop, fmt.Sprintf("--replicas=%d", placementWorkers))
	p.works(placementWorkers)
	for name, shares := range before { // those that stayed have kept what they had
		for _, pod := range []string{"worker-0", "worker-1", "worker-2"} {
			assert.Subset(p.t, indexesOf(p.t, after[name][pod]), indexesOf(p.t, shares[pod]), "%s on %s", name, pod)
		}
	}
}

// indexesOf returns the numbers of a set such as "0-2,7".
func indexesOf(t *testing.T, set string) (all []int) {
	t.Helper()
	if set == "" {
		return nil
	}
	for part := range strings.SplitSeq(set, ",") {
		var first, last int
		if n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n < 2 {
			last = first
		}
		for i := first; i <= last; i++ {
			all = append(all, i)
		}
	}
	return all
}

// last is the node that goes in some of the steps.
func (p *placedCluster) last() string { return p.nodes[len(p.nodes)-1] }

func (p *placedCluster) drain() {
	before := p.now
	node := p.last()
	out, err := p.try("", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String())
	p.kubectl(p.t, "rollout", "status", "statefulset/worker", "-n", shop, "--timeout="+patience.String())
	p.kubectl(p.t, "uncordon", node)
	require.NoError(p.t, err, out)
	assert.Equal(p.t, before, p.works(placementWorkers))
}

// stopKubelet: the pods of the node still run, and renew their Leases.
func (p *placedCluster) stopKubelet() {
	before := p.now
	p.kubelet(p.t, "stop", p.last())
	p.eventually(p.t, func(c *assert.CollectT) { assert.False(c, isNodeReady(p.nodeOf(c, p.last()))) }, "the node is not ready")
	assert.Equal(p.t, before, p.works(placementWorkers))
	p.kubelet(p.t, "start", p.last())
	p.eventually(p.t, func(c *assert.CollectT) { assert.True(c, isNodeReady(p.nodeOf(c, p.last()))) }, "the node is ready")
	assert.Equal(p.t, before, p.works(placementWorkers))
}

// loseNode: the pods of the node end without a signal, and are created elsewhere.
func (p *placedCluster) loseNode() {
	// So that the node has workers.
	p.kubectl(p.t, "cordon", p.first)
	p.kubectl(p.t, "rollout", "restart", "statefulset/worker", "-n", shop)
	p.kubectl(p.t, "rollout", "status", "statefulset/worker", "-n", shop, "--timeout="+patience.String())
	p.kubectl(p.t, "uncordon", p.first)
	p.works(placementWorkers)
	out, err := p.try("", "get", "pods", "-n", shop, "-l", "app.kubernetes.io/name=worker", "--field-selector=spec.nodeName="+p.last(), "-o", "name")
	require.NoError(p.t, err, out)
	require.NotEmpty(p.t, strings.TrimSpace(out), "pods on %s", p.last())
	zone := "NODE_LABELS=" + corev1.LabelTopologyZone + "=" + p.nodeOf(p.t, p.last()).Labels[corev1.LabelTopologyZone]
	p.node("rm", p.last())
	p.works(placementWorkers)
	p.node("add", p.last(), zone)
	p.works(placementWorkers)
}

// node removes or adds a node.
func (p *placedCluster) node(action, name string, env ...string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(p.scripts, "node.sh"), action, name)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, "%s", out)
}

// again: the epochs of the new Queue are higher, so the fence does not refuse its workers.
func (p *placedCluster) again() {
	name := queueNames()[0]
	p.kubectl(p.t, "delete", "queue", name, "-n", shop)
	p.create(name)
	p.works(placementWorkers)
}

// deployment replaces the StatefulSet by a Deployment with the same pods.
func (p *placedCluster) deployment() {
	out, err := p.try("", "get", "statefulset", "worker", "-n", shop, "-o", "json")
	require.NoError(p.t, err, out)
	var set struct {
		Spec struct{ Selector, Template json.RawMessage }
	}
	require.NoError(p.t, json.Unmarshal([]byte(out), &set))
	p.kubectl(p.t, "delete", "statefulset", "worker", "-n", shop, "--timeout=2m")
	const pools = "pools: [{name: worker, namespace: shop, kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions}]}]"
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"pools.yaml": pools}})
	require.NoError(p.t, err)
	p.kubectl(p.t, "patch", "configmap", "placement-pools", "-n", placementSystem, "--type=merge", "-p", string(patch))
	p.kubectl(p.t, "rollout", "restart", "deployment/placement-controller", "-n", placementSystem)
	p.kubectl(p.t, "rollout", "status", "deployment/placement-controller", "-n", placementSystem, "--timeout="+patience.String())
	out, err = p.try(fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"worker","namespace":%q},"spec":{"replicas":%d,"selector":%s,"template":%s}}`,
		shop, placementWorkers, set.Spec.Selector, set.Spec.Template), "apply", "-f", "-")
	require.NoError(p.t, err, out)
	p.works(placementWorkers)
	p.kubectl(p.t, "rollout", "restart", "deployment/worker", "-n", shop)
	p.kubectl(p.t, "rollout", "status", "deployment/worker", "-n", shop, "--timeout="+patience.String())
	p.works(placementWorkers)
}

func (p *placedCluster) uninstall() {
	p.kubectl(p.t, "delete", "-k", placementDir, "--ignore-not-found", "--timeout=2m")
	for _, namespace := range []string{placementSystem, shop} {
		err := p.client.Get(context.WithoutCancel(p.t.Context()), types.NamespacedName{Name: namespace}, &corev1.Namespace{})
		assert.True(p.t, apierrors.IsNotFound(err), "namespace %s: %v", namespace, err)
	}
}
