package cluster_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/test/webhooks"
)

// readyWithin is what a person waits for who has applied the manifests.
const readyWithin = time.Minute

// walk is a cluster and what is known of it.
type walk struct {
	*realCluster

	t       *testing.T // of the step
	usage   *usage
	foreign []*corev1.ConfigMap
}

func TestWalk(t *testing.T) {
	w := &walk{realCluster: connect(t)}
	w.usage = measure(t, w.realCluster, system)
	for _, step := range []struct {
		name string
		run  func(*walk)
	}{
		{"the minikube overlay is ready within a minute", (*walk).applyMinikube},
		{"other products put ConfigMaps into every namespace", (*walk).addForeign},
		{"a node that its kubelet registers again has its labels back", (*walk).registerAgain},
		{"another machine of that name keeps its own kubelet's labels", (*walk).becomeAnotherMachine},
		{"the live page in the cluster opens through kubectl port-forward", (*walk).openPage},
		{"pods of the system's priority classes need a quota", (*walk).checkQuota},
		{"what only nodekeeper may write is refused to others, and the rest to nodekeeper", (*walk).checkGuarded},
		{"labels come back to the nodes of the services' own pods", (*walk).deleteEveryNode},
		{"labels come back to a node whose pods had to move", (*walk).loseNodeOfWatcher},
		{"no label is lost while the only replicas are rolled", (*walk).rollMinikube},
		{"the ha overlay has a replica on every node", (*walk).applyHA},
		{"no version of a returned node is without its labels and without the taint", (*walk).throughWebhook},
		{"a node whose record is gone joins untouched", (*walk).joinUntouched},
		{"no label is lost while all replicas are rolled", (*walk).rollHA},
		{"a drained node that is deleted comes back with its labels", (*walk).drain},
		{"a pod without a right says which, and the others go on", (*walk).lackRight},
		{"nothing was restarted, and the requests and limits are enough", (*walk).staysWithinLimits},
		{"other products' ConfigMaps are as they were", (*walk).checkForeign},
		{"after uninstalling, the labels are all that is left", (*walk).uninstall},
	} {
		if !t.Run(step.name, func(t *testing.T) { w.t = t; step.run(w) }) {
			w.showServices(t)
			t.FailNow() // the other steps would go on from somewhere else
		}
	}
}

func (w *walk) applyMinikube() {
	begin := time.Now()
	w.kubectl(w.t, "apply", "-k", overlay("minikube"))
	w.allReady(w.t, readyWithin, 1)
	w.t.Logf("from kubectl apply to all pods ready: %.1f s", time.Since(begin).Seconds())
	assert.Less(w.t, time.Since(begin), readyWithin)
}

// registerAgain deletes a node right after it was labelled. Another machine returns, in another
// zone.
func (w *walk) registerAgain() {
	name := w.nodes[len(w.nodes)-1]
	w.kubectl(w.t, "label", "node", name, "rack=r7", "example.com/team=blue", "node-role.kubernetes.io/gpu=")
	want := w.labelsOf(w.t, name)
	require.Equal(w.t, "a", want[corev1.LabelTopologyZone], "the cluster is to have its nodes in zone a")
	want[corev1.LabelTopologyZone] = "b"

	old := w.uidOf(w.t, name)
	w.kubectl(w.t, "delete", "node", name)
	w.kubelet(w.t, "restart", name, corev1.LabelTopologyZone+"=b")
	w.t.Logf("from the node's return to its labels: %s", w.hasReturned(w.t, name, old, want))
	assert.Equal(w.t, name, want[corev1.LabelHostname], "the kubelet's own label")
	saved := w.recordOf(w.t, name)
	assert.Equal(w.t, "r7", saved.Data["rack"])
	assert.Equal(w.t, "blue", saved.Data["example.com---SLASH---team"])
}

// becomeAnotherMachine lets a node come back twice with other labels of its kubelet. In between, a
// person removes one of these and changes another.
func (w *walk) becomeAnotherMachine() {
	name := w.nodes[len(w.nodes)-1]
	zone := corev1.LabelTopologyZone + "=b"
	comeBack := func(want map[string]string, own ...string) {
		old := w.uidOf(w.t, name)
		w.kubectl(w.t, "delete", "node", name)
		w.kubelet(w.t, "restart", name, append(own, zone)...)
		w.hasReturned(w.t, name, old, want)
	}
	people := w.labelsOf(w.t, name)
	want := func(own map[string]string) map[string]string {
		maps.Copy(own, people)
		return own
	}
	comeBack(want(map[string]string{"example.com/group": "blue", "example.com/image": "v1", "example.com/tier": "bronze", "example.com/pool": "a"}),
		"example.com/group=blue", "example.com/image=v1", "example.com/tier=bronze", "example.com/pool=a")
	w.kubectl(w.t, "label", "node", name, "example.com/tier-", "example.com/pool=mine", "--overwrite")
	comeBack(want(map[string]string{"example.com/group": "green", "example.com/size": "xl", "example.com/pool": "mine"}),
		"example.com/group=green", "example.com/size=xl", "example.com/tier=bronze", "example.com/pool=b")
}

// deleteEveryNode deletes all nodes at once, so also those of the pods of the services. One was
// edited after its restore.
func (w *walk) deleteEveryNode() {
	w.kubectl(w.t, "label", "node", w.nodes[len(w.nodes)-1], "rack-", "example.com/team=red", "--overwrite")
	want, old := map[string]map[string]string{}, map[string]types.UID{}
	for _, name := range w.nodes {
		w.kubectl(w.t, "label", "node", name, "everywhere="+name)
		want[name], old[name] = w.labelsOf(w.t, name), w.uidOf(w.t, name)
	}
	w.kubectl(w.t, "delete", "node", "--all")
	for _, name := range w.nodes {
		w.kubelet(w.t, "restart", name)
	}
	for _, name := range w.nodes {
		w.hasReturned(w.t, name, old[name], want[name])
	}
	w.allReady(w.t, patience, 1)
}

// loseNodeOfWatcher takes the node of the only watcher away for so long that Kubernetes starts
// another pod elsewhere.
func (w *walk) loseNodeOfWatcher() {
	name := w.podsOf(w.t, "watcher")[0].Spec.NodeName
	w.kubectl(w.t, "label", "node", name, "away=long")
	want, old := w.labelsOf(w.t, name), w.uidOf(w.t, name)
	w.kubelet(w.t, "stop", name)
	w.kubectl(w.t, "delete", "node", name)
	w.eventually(w.t, func(c *assert.CollectT) {
		for _, service := range w.services(w.t) {
			pods := w.podsOf(c, service)
			require.Len(c, pods, 1)
			assert.NotEqual(c, name, pods[0].Spec.NodeName, "pod %s is on the node that is gone", pods[0].Name)
			assert.True(c, isReady(&pods[0]), "pod %s is ready", pods[0].Name)
		}
	}, "the services run elsewhere")
	w.kubelet(w.t, "start", name)
	w.hasReturned(w.t, name, old, want)
}

func (w *walk) rollMinikube() {
	c := startChurn(w.t, w.realCluster)
	w.roll(w.t, 1)
	c.stop(w.t)
	w.settled(w.t)
}

func (w *walk) applyHA() {
	w.kubectl(w.t, "apply", "-k", overlay("ha"))
	w.rolledOut(w.t, 3)
	w.allReady(w.t, patience, 3)
	w.spread(w.t)
}

// throughWebhook lets a kubelet register with labels, some of which it may not set itself. While a
// webhook cannot know the labels, as where its cache is behind, it gives the node the taint alone,
// and the processors restore the labels: then the node returns once more.
func (w *walk) throughWebhook() {
	name := w.nodes[len(w.nodes)-1]
	w.kubectl(w.t, "label", "node", name, "rack=r9", "node-role.kubernetes.io/gpu=", "example.k8s.io/pool=a", "--overwrite")
	want := w.labelsOf(w.t, name)
	w.eventually(w.t, func(c *assert.CollectT) {
		assert.Equal(c, "a", w.recordOf(c, name).Data["example.k8s.io---SLASH---pool"])
	}, "the labels are saved")
	var first *corev1.Node
	for range 5 {
		first = w.returnGuarded(name, want)
		assert.NotContains(w.t, first.Labels, "example.k8s.io/pool")
		if first.Labels["rack"] == "r9" {
			break
		}
		w.t.Logf("the first version of the node has the labels %v and the taints %v", first.Labels, first.Spec.Taints)
	}
	assert.Equal(w.t, "r9", first.Labels["rack"], "what a kubelet may set is there from the first version on")
}

// returnGuarded deletes a node, and returns the first version of the Node that its kubelet creates.
// Every version without the startup taint has all labels.
func (w *walk) returnGuarded(name string, want map[string]string) (first *corev1.Node) {
	w.settled(w.t)
	old, versions := w.uidOf(w.t, name), w.versions(w.t, name)
	w.kubectl(w.t, "delete", "node", name)
	w.kubelet(w.t, "restart", name)
	w.hasReturned(w.t, name, old, want)
	for _, n := range versions() {
		if n.UID == old {
			continue
		}
		if first == nil {
			first = n
		}
		if !slices.ContainsFunc(n.Spec.Taints, nodeview.IsStartupTaint) {
			assert.Equal(w.t, want, withoutMarker(n.Labels), "version %s has no startup taint", n.ResourceVersion)
		}
	}
	require.NotNil(w.t, first)
	return first
}

// versions records every version of a node from now on.
func (r *realCluster) versions(t *testing.T, name string) func() []*corev1.Node {
	t.Helper()
	end, err := webhooks.Versions(t.Context(), r.client, name)
	require.NoError(t, err)
	return end
}

// joinUntouched lets a node come back that has no record.
func (w *walk) joinUntouched() {
	name := w.nodes[len(w.nodes)-1]
	before := w.labelsOf(w.t, name)
	old := w.uidOf(w.t, name)
	w.kubectl(w.t, "delete", "node", name)
	w.eventually(w.t, func(c *assert.CollectT) {
		saved, err := record.Parse(w.recordOf(c, name))
		require.NoError(c, err)
		assert.True(c, saved.Ended)
	}, "its end is saved: recorded later, it would found a record of the old labels")
	w.settled(w.t)
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.recordOf(w.t, name)))
	versions := w.versions(w.t, name)
	w.kubelet(w.t, "restart", name)
	w.eventually(w.t, func(c *assert.CollectT) {
		node := w.nodeOf(c, name)
		assert.NotEqual(c, old, node.UID)
		assert.Equal(c, node.UID, types.UID(w.recordOf(c, name).Annotations["nodekeeper.dev/source-uid"]))
	}, "the node is known again")
	for _, n := range versions() {
		if n.UID != old {
			assert.NotContains(w.t, n.Labels, labels.Marker)
			assert.NotContains(w.t, n.Labels, "rack")
			assert.False(w.t, slices.ContainsFunc(n.Spec.Taints, nodeview.IsStartupTaint))
		}
	}
	for key, value := range before { // as it was, for the steps that follow
		w.kubectl(w.t, "label", "node", name, key+"="+value, "--overwrite")
	}
	w.allReady(w.t, patience, 3)
}

// rollHA rolls while nodes come and go; one of them is a node on which the services run.
func (w *walk) rollHA() {
	c := startChurn(w.t, w.realCluster)
	name := w.nodes[1]
	w.kubectl(w.t, "label", "node", name, "rolled=yes")
	want, old := w.labelsOf(w.t, name), w.uidOf(w.t, name)
	w.kubectl(w.t, "rollout", "restart", "deployment", "-n", system)
	w.kubectl(w.t, "delete", "node", name)
	w.kubelet(w.t, "restart", name)
	w.rolledOut(w.t, 3)
	c.stop(w.t)
	w.hasReturned(w.t, name, old, want)
	w.settled(w.t)
	w.spread(w.t)
}

// drain does what maintenance does: it drains a node, removes it, and brings it back.
func (w *walk) drain() {
	name := w.nodes[1]
	w.kubectl(w.t, "drain", name, "--ignore-daemonsets", "--timeout=2m")
	for _, service := range w.services(w.t) {
		for _, pod := range w.podsOf(w.t, service) {
			assert.False(w.t, pod.Spec.NodeName == name && pod.DeletionTimestamp == nil, "%s is still on the drained node", pod.Name)
		}
	}
	w.kubectl(w.t, "label", "node", name, "maintained=yes")
	want, old := w.labelsOf(w.t, name), w.uidOf(w.t, name)
	w.kubectl(w.t, "delete", "node", name)
	w.kubelet(w.t, "restart", name)
	w.hasReturned(w.t, name, old, want)
	w.allReady(w.t, patience, 3)
}

// lacking is in the log of a processor that may not read records.
const lacking = "list configmaps in namespace " + records

// lackRight takes a right away from the processors and rolls them. The first new pod cannot work,
// so the old ones have to.
func (w *walk) lackRight() {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: records, Name: "nodekeeper-processor"}}
	require.NoError(w.t, w.client.Delete(w.t.Context(), binding))
	w.kubectl(w.t, "rollout", "restart", "deployment/processor", "-n", system)
	w.eventually(w.t, func(c *assert.CollectT) {
		var ready, reported int
		for _, pod := range w.podsOf(c, "processor") {
			if isReady(&pod) {
				ready++
			} else if strings.Contains(w.logOf(c, &pod), lacking) {
				reported++
			}
		}
		assert.Equal(c, 3, ready, "processors that are ready")
		assert.Equal(c, 1, reported, "processors that are not ready and say what they lack")
	}, "the new pod says what it lacks, and the old ones stay")

	w.kubectl(w.t, "apply", "-k", overlay("ha"))
	w.rolledOut(w.t, 3)
}

// staysWithinLimits looks at all of the steps before it.
func (w *walk) staysWithinLimits() {
	for _, service := range w.services(w.t) {
		most := w.usage.peak(service)
		w.t.Logf("%s: at most %s", service, most)
		require.NotZero(w.t, most.memory, "the kubelets have told how much memory it takes")
		requests := w.podsOf(w.t, service)[0].Spec.Containers[0].Resources.Requests
		assert.Less(w.t, most.memory, requests.Memory().Value(), "memory of %s, and what it requests", service)
	}
	for pod, reason := range w.usage.ends() {
		assert.Contains(w.t, reason, lacking, "the container of %s ended", pod)
	}
}

// uninstall follows docs/how-to/uninstall.md.
func (w *walk) uninstall() {
	want := map[string]map[string]string{}
	for _, name := range w.nodes {
		want[name] = w.labelsOf(w.t, name)
	}
	w.kubectl(w.t, "delete", "-k", overlay("../uninstall"), "--ignore-not-found", "--timeout=2m")
	isGone := func(namespace string) {
		err := w.client.Get(w.t.Context(), types.NamespacedName{Name: namespace}, &corev1.Namespace{})
		assert.True(w.t, apierrors.IsNotFound(err), "namespace %s: %v", namespace, err)
	}
	isGone(system)
	for _, name := range w.nodes {
		assert.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: records, Name: name}, &corev1.ConfigMap{}), "the record of %s", name)
	}
	w.kubectl(w.t, "delete", "namespace", records, transactions, "--timeout=2m")
	isGone(records)
	isGone(transactions)
	roles := &rbacv1.ClusterRoleList{}
	require.NoError(w.t, w.client.List(w.t.Context(), roles, client.MatchingLabels{"app.kubernetes.io/part-of": "nodekeeper"}))
	assert.Empty(w.t, roles.Items)
	for _, name := range w.nodes {
		assert.Equal(w.t, want[name], w.labelsOf(w.t, name), "labels of %s", name)
	}
}
