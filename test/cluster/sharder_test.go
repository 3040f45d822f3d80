package cluster_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	sharderSystem = "sharder-system"
	// checksums is the namespace of the example of the sharder, and the name of its ring.
	checksums  = "checksums"
	shardLabel = "shard.sharding.nodekeeper.dev/" + checksums
	// served is the number of Secrets that the example works on.
	served = 60
)

// shardedCluster is a cluster with the sharder and its example.
type shardedCluster struct {
	*realCluster

	t     *testing.T // of the step
	usage *usage
}

// TestSharder installs the sharder by its page, sharding/docs/install.md, replaces its replicas and those of the example, and
// uninstalls it.
func TestSharder(t *testing.T) {
	s := &shardedCluster{realCluster: connect(t)}
	s.usage = measure(t, s.realCluster, sharderSystem)
	out, err := exec.CommandContext(t.Context(), filepath.Join(s.scripts, "load-image.sh"),
		"nodekeeper-example-checksum:dev", filepath.Join("..", "..", "bin", "example-checksum")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, step := range []struct {
		name string
		run  func(*shardedCluster)
	}{
		{"the ha overlay is ready within a minute, with a replica on every node", (*shardedCluster).install},
		{"the replicas of the example share the Secrets", (*shardedCluster).addExample},
		{"a replica of the sharder and one of the example are killed", (*shardedCluster).killLeader},
		{"new objects have their shard while no sharder runs", (*shardedCluster).killAll},
		{"a node is drained", (*shardedCluster).drain},
		{"sharder and example are rolled", (*shardedCluster).roll},
		{"the requests are enough", (*shardedCluster).staysWithinLimits},
		{"after uninstalling, no label is left", (*shardedCluster).uninstall},
	} {
		if !t.Run(step.name, func(t *testing.T) { s.t = t; step.run(s) }) {
			s.show(t)
			t.FailNow() // the other steps would go on from somewhere else
		}
	}
}

// sharding returns the path of a directory of sharding/deploy.
func sharding(dir string) string { return filepath.Join("..", "..", "sharding", "deploy", dir) }

func (s *shardedCluster) install() {
	begin := time.Now()
	s.kubectl(s.t, "apply", "-k", sharding("crd"))
	s.kubectl(s.t, "apply", "-k", sharding("overlays/ha"))
	s.kubectl(s.t, "rollout", "status", "deployment/sharder", "-n", sharderSystem, "--timeout="+readyWithin.String())
	s.t.Logf("from kubectl apply to all pods ready: %.1f s", time.Since(begin).Seconds())
	assert.Less(s.t, time.Since(begin), readyWithin)
	var on []string
	for _, pod := range s.pods(s.t, sharderSystem) {
		on = append(on, pod.Spec.NodeName)
	}
	assert.ElementsMatch(s.t, s.nodes, on, "the nodes of the sharder")
}

func (s *shardedCluster) addExample() {
	s.kubectl(s.t, "apply", "-k", sharding("example"))
	s.kubectl(s.t, "wait", "--for=condition=Ready", "--for=condition=AdmissionInstalled", "ring/"+checksums, "--timeout="+patience.String())
	for i := range served {
		s.kubectl(s.t, "create", "secret", "generic", fmt.Sprintf("s-%d", i), "--from-literal=password=p", "-n", checksums)
	}
	s.isServed(served)
}

// pods returns the pods of a namespace that are not ending.
func (s *shardedCluster) pods(t require.TestingT, namespace string) (found []corev1.Pod) {
	pods := &corev1.PodList{}
	require.NoError(t, s.client.List(s.t.Context(), pods, client.InNamespace(namespace)))
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	return found
}

// isServed waits until exactly the pods of the example have the Secrets, each with its ConfigMap.
func (s *shardedCluster) isServed(n int) {
	s.eventually(s.t, func(c *assert.CollectT) {
		secrets, stored := &corev1.SecretList{}, &corev1.ConfigMapList{}
		require.NoError(c, s.client.List(s.t.Context(), secrets, client.InNamespace(checksums)))
		require.NoError(c, s.client.List(s.t.Context(), stored, client.InNamespace(checksums), client.HasLabels{shardLabel}))
		require.Len(c, secrets.Items, n)
		ofChild := map[string]string{}
		for _, m := range stored.Items {
			ofChild[m.Name] = m.Labels[shardLabel]
		}
		owners, want := map[string]bool{}, map[string]bool{}
		for _, secret := range secrets.Items {
			require.Equal(c, secret.Labels[shardLabel], ofChild["checksums-"+secret.Name], secret.Name)
			owners[secret.Labels[shardLabel]] = true
		}
		for _, pod := range s.pods(c, checksums) {
			want[pod.Name] = true
		}
		require.Equal(c, want, owners, "the shards of the Secrets, and the pods")
		require.Len(c, want, 3)
	}, "the pods of the example share the Secrets")
}

// leader returns the pod of the sharder that leads.
func (s *shardedCluster) leader(t require.TestingT) string {
	out, err := exec.CommandContext(s.t.Context(), "kubectl", "get", "lease", "sharder", "-n", sharderSystem, "-o", "jsonpath={.spec.holderIdentity}").Output()
	require.NoError(t, err)
	name, _, _ := strings.Cut(string(out), "_") // the host name, and a random suffix
	return name
}

func (s *shardedCluster) killLeader() {
	begin, former := time.Now(), s.leader(s.t)
	shard := s.pods(s.t, checksums)[0].Name
	s.kubectl(s.t, "delete", "pod", shard, "-n", checksums, "--force", "--grace-period=0")
	s.kubectl(s.t, "delete", "pod", former, "-n", sharderSystem, "--force", "--grace-period=0")
	s.eventually(s.t, func(c *assert.CollectT) {
		now := s.leader(c)
		assert.NotEmpty(c, now)
		assert.NotEqual(c, former, now)
	}, "another replica leads")
	s.t.Logf("from the end of the leader to the next: %.1f s", time.Since(begin).Seconds())
	s.isServed(served)
	s.t.Logf("until all Secrets are served: %.1f s", time.Since(begin).Seconds())
}

func (s *shardedCluster) killAll() {
	s.kubectl(s.t, "scale", "deployment/sharder", "-n", sharderSystem, "--replicas=0")
	s.eventually(s.t, func(c *assert.CollectT) {
		pods := &corev1.PodList{} // those that are ending still act
		require.NoError(c, s.client.List(s.t.Context(), pods, client.InNamespace(sharderSystem)))
		assert.Empty(c, pods.Items)
	}, "no sharder runs")
	s.kubectl(s.t, "create", "secret", "generic", "late", "-n", checksums)
	late := &corev1.Secret{}
	require.NoError(s.t, s.client.Get(s.t.Context(), types.NamespacedName{Namespace: checksums, Name: "late"}, late))
	assert.NotEmpty(s.t, late.Labels[shardLabel])
	s.isServed(served + 1)
	s.kubectl(s.t, "apply", "-k", sharding("overlays/ha"))
	s.kubectl(s.t, "rollout", "status", "deployment/sharder", "-n", sharderSystem, "--timeout="+patience.String())
}

func (s *shardedCluster) drain() {
	node := s.nodes[len(s.nodes)-1]
	out, err := exec.CommandContext(s.t.Context(), "kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String()).CombinedOutput()
	pods := s.pods(s.t, sharderSystem)
	s.kubectl(s.t, "uncordon", node) // other tests need the node
	require.NoError(s.t, err, "%s", out)
	for _, pod := range pods {
		assert.NotEqual(s.t, node, pod.Spec.NodeName)
	}
	s.kubectl(s.t, "rollout", "status", "deployment/checksum", "-n", checksums, "--timeout="+patience.String())
	s.isServed(served + 1)
}

func (s *shardedCluster) roll() {
	for _, rolled := range [][]string{{"deployment/sharder", "-n", sharderSystem}, {"deployment/checksum", "-n", checksums}} {
		s.kubectl(s.t, append([]string{"rollout", "restart"}, rolled...)...)
		s.kubectl(s.t, append([]string{"rollout", "status", "--timeout=" + patience.String()}, rolled...)...)
	}
	s.isServed(served + 1)
}

// staysWithinLimits looks at all of the steps before it.
func (s *shardedCluster) staysWithinLimits() {
	most := s.usage.peak("sharder")
	s.t.Logf("at most %s", most)
	require.NotZero(s.t, most.memory, "the kubelets report how much memory it takes")
	requests := s.pods(s.t, sharderSystem)[0].Spec.Containers[0].Resources.Requests
	assert.Less(s.t, most.memory, requests.Memory().Value(), "memory, and the request for it")
	s.t.Logf("restarted: %v", s.usage.ends()) // on a busy machine, a leader may lose its Lease and end
}

// uninstall follows sharding/docs/install.md.
func (s *shardedCluster) uninstall() {
	s.kubectl(s.t, "delete", "ring", "--all", "--timeout=2m")
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		metadata := &metav1.PartialObjectMetadataList{}
		kinds, _, err := s.client.Scheme().ObjectKinds(list)
		require.NoError(s.t, err)
		metadata.SetGroupVersionKind(kinds[0])
		require.NoError(s.t, s.client.List(s.t.Context(), metadata, client.HasLabels{shardLabel}))
		assert.Empty(s.t, metadata.Items)
	}
	s.kubectl(s.t, "delete", "-k", sharding("example"), "--ignore-not-found", "--timeout=2m")
	s.kubectl(s.t, "delete", "-k", sharding("overlays/ha"), "--timeout=2m")
	s.kubectl(s.t, "delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy,validatingadmissionpolicybinding,validatingadmissionpolicy", "sharding-anchor")
	s.kubectl(s.t, "delete", "-k", sharding("crd"), "--timeout=2m")
	for _, namespace := range []string{sharderSystem, checksums} {
		err := s.client.Get(s.t.Context(), types.NamespacedName{Name: namespace}, &corev1.Namespace{})
		assert.True(s.t, apierrors.IsNotFound(err), "namespace %s: %v", namespace, err)
	}
}

// show prints the state of the sharder and its example.
func (s *shardedCluster) show(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "ring", "-o", "yaml"},
		{"get", "pods", "-A", "-o", "wide"},
		{"describe", "pods", "-n", sharderSystem},
		{"logs", "-n", sharderSystem, "-l", "app.kubernetes.io/part-of=sharder", "--prefix", "--tail=60"},
		{"logs", "-n", checksums, "-l", "app.kubernetes.io/name=checksum", "--prefix", "--tail=40"},
	} {
		show(t, args...)
	}
}
