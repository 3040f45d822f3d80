package cluster_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// scriptsEnv names the directory of the scripts that stop and start kubelets. If it is set, there
// is a cluster to walk through, that of $KUBECONFIG. See make cluster-test.
const scriptsEnv = "CLUSTER_SCRIPTS"

// The namespaces of the manifests.
const (
	system       = "nodekeeper-system"
	transactions = "node-metadata-transactions"
	records      = "node-metadata"
)

// services returns the names of the Deployments, which are those of their containers, too.
func (r *realCluster) services(t require.TestingT) []string {
	deployments := &appsv1.DeploymentList{}
	require.NoError(t, r.client.List(context.Background(), deployments, client.InNamespace(system)))
	require.NotEmpty(t, deployments.Items)
	var names []string
	for i := range deployments.Items {
		names = append(names, deployments.Items[i].Name)
	}
	return names
}

const (
	// patience is how long the walk waits for what must come. Pods of a node that is gone are moved after a minute or two.
	patience = 4 * time.Minute
	// period is the time between two looks at the cluster.
	period = 100 * time.Millisecond
)

// realCluster is a cluster of real kubelets. It is safe for concurrent use.
type realCluster struct {
	client    client.WithWatch
	clientset kubernetes.Interface // for what client cannot: logs, and to ask kubelets
	// nodes are the names of those that have kubelets.
	nodes []string
	// scripts is a directory.
	scripts string
}

func connect(t *testing.T) *realCluster {
	t.Helper()
	scripts := os.Getenv(scriptsEnv)
	if scripts == "" {
		t.Skip("this needs a cluster of real kubelets: make cluster-test")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	require.NoError(t, err)
	cfg.QPS = -1
	c, err := client.NewWithWatch(cfg, client.Options{})
	require.NoError(t, err)
	clientset, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	nodes := &corev1.NodeList{}
	require.NoError(t, c.List(t.Context(), nodes))
	found := &realCluster{client: c, clientset: clientset, scripts: scripts}
	for _, n := range nodes.Items {
		found.nodes = append(found.nodes, n.Name)
	}
	require.Len(t, found.nodes, 3, "the walk needs a cluster of three nodes")
	return found
}

// overlay returns the path of an overlay.
func overlay(name string) string { return filepath.Join("..", "..", "deploy", "overlays", name) }

// kubectl does what a person does.
func (r *realCluster) kubectl(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kubectl", args...).CombinedOutput()
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), out)
}

// kubelet stops, starts or restarts the kubelet of a node. Labels of its own (key=value) replace those that it registers with.
func (r *realCluster) kubelet(t *testing.T, action, node string, own ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.scripts, "node.sh"), "kubelet-"+action, node)
	if len(own) > 0 {
		cmd.Env = append(os.Environ(), "NODE_LABELS="+strings.Join(own, ","))
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "kubelet-%s %s: %s", action, node, out)
}

func (r *realCluster) nodeOf(t require.TestingT, name string) *corev1.Node {
	node := &corev1.Node{}
	require.NoError(t, r.client.Get(context.Background(), types.NamespacedName{Name: name}, node))
	return node
}

func (r *realCluster) uidOf(t require.TestingT, name string) types.UID { return r.nodeOf(t, name).UID }

// labelsOf returns the labels of a node without the marker.
func (r *realCluster) labelsOf(t require.TestingT, name string) map[string]string {
	return withoutMarker(r.nodeOf(t, name).Labels)
}

// isRestored reports whether a node has the marker of a restore: with the marker "pending", that is
// still to come.
func isRestored(node *corev1.Node) bool {
	marker := node.Labels[labels.Marker]
	return marker != "" && marker != labels.Pending
}

func withoutMarker(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	delete(kept, labels.Marker)
	return kept
}

func (r *realCluster) recordOf(t require.TestingT, name string) *corev1.ConfigMap {
	record := &corev1.ConfigMap{}
	require.NoError(t, r.client.Get(context.Background(), types.NamespacedName{Namespace: records, Name: name}, record))
	return record
}

// hasReturned waits until another incarnation of a node than the old one has just these labels. It returns how long after
// its creation that was seen, which is exact to a second: so are creation times.
func (r *realCluster) hasReturned(t *testing.T, name string, old types.UID, want map[string]string) time.Duration {
	t.Helper()
	var created time.Time
	r.eventually(t, func(c *assert.CollectT) {
		node := r.nodeOf(c, name)
		require.NotEqual(c, old, node.UID, "it was registered again")
		assert.Equal(c, want, withoutMarker(node.Labels))
		assert.True(c, isRestored(node), "its marker is %q", node.Labels[labels.Marker])
		created = node.CreationTimestamp.Time
	}, "node "+name+" is back with its labels")
	return time.Since(created).Round(100 * time.Millisecond)
}

// podsOf returns the pods of a service that are not ending.
func (r *realCluster) podsOf(t require.TestingT, service string) []corev1.Pod {
	pods := &corev1.PodList{}
	require.NoError(t, r.client.List(context.Background(), pods, client.InNamespace(system),
		client.MatchingLabels{"app.kubernetes.io/name": service}))
	var found []corev1.Pod
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	return found
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// allReady waits until each service has so many pods that are ready, and no others.
func (r *realCluster) allReady(t *testing.T, within time.Duration, replicas int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, service := range r.services(c) {
			pods := r.podsOf(c, service)
			assert.Len(c, pods, replicas, service)
			for _, pod := range pods {
				assert.True(c, isReady(&pod), "pod %s is ready", pod.Name)
			}
		}
	}, within, period)
}

// roll replaces every pod of all services.
func (r *realCluster) roll(t *testing.T, replicas int32) {
	t.Helper()
	r.kubectl(t, "rollout", "restart", "deployment", "-n", system)
	r.rolledOut(t, replicas)
}

// rolledOut waits until all pods are of the last revision, and checks that there are as many as there should be.
func (r *realCluster) rolledOut(t *testing.T, replicas int32) {
	t.Helper()
	for _, service := range r.services(t) {
		r.kubectl(t, "rollout", "status", "deployment/"+service, "-n", system, "--timeout="+patience.String())
		d := &appsv1.Deployment{}
		require.NoError(t, r.client.Get(t.Context(), types.NamespacedName{Namespace: system, Name: service}, d))
		assert.Equal(t, replicas, d.Status.UpdatedReplicas, "updated replicas of %s", service)
	}
}

// spread waits until every node has one pod of each service: those that were rolled take a while to end.
func (r *realCluster) spread(t *testing.T) {
	t.Helper()
	r.eventually(t, func(c *assert.CollectT) {
		for _, service := range r.services(c) {
			var on []string
			for _, pod := range r.podsOf(c, service) {
				on = append(on, pod.Spec.NodeName)
			}
			assert.ElementsMatch(c, r.nodes, on, "the nodes of %s", service)
		}
	}, "every node has a pod of each service")
}

// settled waits until no transaction is left.
func (r *realCluster) settled(t *testing.T) {
	t.Helper()
	r.eventually(t, func(c *assert.CollectT) {
		left := &corev1.ConfigMapList{}
		require.NoError(c, r.client.List(t.Context(), left, client.InNamespace(transactions), client.HasLabels{"nodekeeper.dev/type"}))
		assert.Empty(c, left.Items)
	}, "every transaction is applied")
}

// logOf returns the log of a pod, or "" if its container has not started.
func (r *realCluster) logOf(t require.TestingT, pod *corev1.Pod) string {
	content, err := r.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(context.Background())
	if apierrors.IsBadRequest(err) {
		return ""
	}
	require.NoError(t, err)
	return string(content)
}

// showServices prints the state and the logs of the services.
func (r *realCluster) showServices(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "nodes", "--show-labels"},
		{"get", "pods", "-n", system, "-o", "wide"},
		{"describe", "pods", "-n", system},
		{"logs", "-n", system, "-l", "app.kubernetes.io/part-of=nodekeeper", "--prefix", "--tail=100"},
	} {
		show(t, args...)
	}
}

// show logs what a kubectl command prints.
func show(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kubectl", args...).CombinedOutput()
	t.Logf("kubectl %s (%v):\n%s", strings.Join(args, " "), err, out)
}

func (r *realCluster) eventually(t *testing.T, condition func(c *assert.CollectT), message string) {
	t.Helper()
	require.EventuallyWithT(t, condition, patience, period, message)
}
