package e2e_test

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// registerWith creates a Node with annotations and taints, with a field manager.
func (e *env) registerWith(manager, name string, annotations map[string]string, taints ...corev1.Taint) {
	e.t.Helper()
	e.nodes[name] = true
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: corev1.NodeSpec{Taints: taints, Unschedulable: true}}
	require.NoError(e.t, e.client.Create(e.t.Context(), n, client.FieldOwner(manager)))
}

// taint sets these taints of a Node, like kubectl taint.
func (e *env) taint(name string, taints ...corev1.Taint) {
	e.t.Helper()
	n := &corev1.Node{}
	require.NoError(e.t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	before := n.DeepCopy()
	n.Spec.Taints = taints
	require.NoError(e.t, e.client.Patch(e.t.Context(), n, client.MergeFrom(before), client.FieldOwner("kubectl-taint")))
}

// taintsOf returns the taints of a Node, except those set by the API server or a controller.
func (e *env) taintsOf(t require.TestingT, name string) (found []corev1.Taint) {
	n := &corev1.Node{}
	require.NoError(t, e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, n))
	for _, taint := range n.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady {
			found = append(found, taint)
		}
	}
	return found
}

func noSchedule(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

func noExecute(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
}

const annotationsFlag, taintsFlag = "--preserve-annotations=example.com/*", "--preserve-taints=dedicated,example.com/*:NoExecute,*.example.com/*"

func TestTaintsAndAnnotationsComeBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	e.watcher(annotationsFlag, taintsFlag)
	e.processor(annotationsFlag, taintsFlag)
	e.registerWith("kubectl", name, map[string]string{"example.com/owner": "team-a", "example.net/other": "x"},
		noSchedule("dedicated", "gpu"), noExecute("example.com/evict"), noSchedule("example.com/soft", ""), noExecute("a.example.com/evict"))
	e.set(name, "rack", "r1")
	e.saved(name, labelSet{
		"rack": "r1", labels.AnnotationKey("example.com/owner"): "team-a",
		labels.TaintKey("dedicated", "NoSchedule"): "gpu", labels.TaintKey("example.com/evict", "NoExecute"): "",
	})
	e.delete(name)
	e.registerWith("kubelet", name, map[string]string{"example.net/other": "y"}, noSchedule("mine", "1"))
	e.restored(name, labelSet{"rack": "r1"})
	assert.Equal(t, []corev1.Taint{noSchedule("mine", "1"), noSchedule("dedicated", "gpu"), noExecute("example.com/evict")}, e.taintsOf(t, name))
	annotations := e.node(t, name).Annotations
	assert.Equal(t, "team-a", annotations["example.com/owner"])
	assert.Equal(t, "y", annotations["example.net/other"], "it is not kept")
	e.settle()
}

// TestAnnotationsForAutoscalersComeBackByName: people keep a node from being scaled down. No pattern
// selects annotations of autoscalers; those that are named by their full key come back.
func TestAnnotationsForAutoscalersComeBackByName(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	const disabled, undisrupted, unnamed = "cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-consolidate"
	flag := "--preserve-annotations=*," + disabled + "," + undisrupted
	e.watcher(flag)
	e.processor(flag)
	e.registerWith("kubelet", name, nil)
	body := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+disabled+`":"true","`+undisrupted+`":"true","`+unnamed+`":"true"}}}`))
	require.NoError(t, e.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, body, client.FieldOwner("kubectl-annotate")))
	e.saved(name, labelSet{labels.AnnotationKey(disabled): "true", labels.AnnotationKey(undisrupted): "true"})
	e.delete(name)
	e.registerWith("kubelet", name, nil)
	e.eventually(func(c *assert.CollectT) {
		annotations := e.node(c, name).Annotations
		assert.Equal(c, "true", annotations[disabled])
		assert.Equal(c, "true", annotations[undisrupted])
	}, "the annotations that the flag names are back")
	assert.NotContains(t, e.node(t, name).Annotations, unnamed)
	e.settle()
}

// TestAnnotationComesBackDuringARollOfTheWatchers: a Node is made again from an older manifest, and one
// of the watchers that record it does not have the flag yet.
func TestAnnotationComesBackDuringARollOfTheWatchers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	w, p := e.watcher(annotationsFlag), e.processor(annotationsFlag)
	e.registerWith("kubectl-create", name, map[string]string{"example.com/owner": "team-a"})
	e.set(name, "rack", "r1")
	e.saved(name, labelSet{"rack": "r1", labels.AnnotationKey("example.com/owner"): "team-a"})
	e.drained(name)
	e.stop(p)
	e.delete(name)
	e.registerWith("kubectl-create", name, map[string]string{"example.com/owner": "nobody"})
	e.recorded(e.node(t, name).UID, txn.Added)
	e.stop(w)
	e.watcher()
	e.recorded(e.set(name, "tier", "gold").UID, txn.Updated)
	e.processor(annotationsFlag)
	e.restored(name, labelSet{"rack": "r1", "tier": "gold"})
	assert.Equal(t, "team-a", e.node(t, name).Annotations["example.com/owner"])
	e.settle()
}

// TestRemovedTaintsStayRemoved has a person remove a taint that the kubelets of both machines
// register with, and change another.
func TestRemovedTaintsStayRemoved(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	e.watcher(taintsFlag)
	e.processor(taintsFlag)
	own := []corev1.Taint{noSchedule("dedicated", "gpu"), noExecute("example.com/evict")}
	e.registerWith("kubelet", name, nil, own...)
	e.saved(name, labelSet{labels.TaintKey("dedicated", "NoSchedule"): "gpu", labels.TaintKey("example.com/evict", "NoExecute"): ""})
	e.taint(name, noExecute("example.com/evict"))
	e.saved(name, labelSet{labels.TaintKey("example.com/evict", "NoExecute"): ""})
	e.delete(name)
	e.registerWith("kubelet", name, nil, own...)
	e.restored(name, labelSet{})
	assert.Equal(t, []corev1.Taint{noExecute("example.com/evict")}, e.taintsOf(t, name))
	e.settle()
}

// TestWhatIsRemovedOfAProtectedNode checks a removal that no watcher sees, but that the processor
// sees when the node is deleted.
func TestWhatIsRemovedOfAProtectedNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	name, note := e.name("node"), map[string]string{"example.com/note": "1"}
	w := e.watcher(annotationsFlag, taintsFlag)
	e.processor(annotationsFlag, taintsFlag, "--protect=finalizer")
	own := []corev1.Taint{noSchedule("dedicated", "gpu"), noExecute("example.com/evict")}
	e.registerWith("kubelet", name, note, own...)
	e.protected(name)
	e.saved(name, labelSet{
		labels.TaintKey("dedicated", "NoSchedule"): "gpu", labels.TaintKey("example.com/evict", "NoExecute"): "",
		labels.AnnotationKey("example.com/note"): "1",
	})
	e.stop(w)
	e.taint(name, noExecute("example.com/evict"))
	n := e.node(t, name)
	require.NoError(t, e.client.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`)), client.FieldOwner("kubectl-edit")))
	e.delete(name)
	e.gone(name)
	e.saved(name, labelSet{labels.TaintKey("example.com/evict", "NoExecute"): ""})

	e.watcher(annotationsFlag, taintsFlag)
	e.registerWith("kubelet", name, note, own...)
	e.restored(name, labelSet{})
	assert.Equal(t, []corev1.Taint{noExecute("example.com/evict")}, e.taintsOf(t, name))
	assert.Empty(t, e.node(t, name).Annotations)
	e.unprotect()
}

// report changes the status of a Node, as a kubelet does every few minutes.
func (e *env) report(name string) {
	e.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeInfo":{"kubeletVersion":"`+rand.String(8)+`"}}}`))
	require.NoError(e.t, e.client.Status().Patch(e.t.Context(), e.node(e.t, name), patch, client.FieldOwner("kubelet")))
}

// TestFlagsAreGivenAndTakenAway adds and removes flags while nodes have taints that their kubelets
// register with. No taint is lost.
func TestFlagsAreGivenAndTakenAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := e.name("node")
	own := []corev1.Taint{noSchedule("dedicated", "gpu")}
	blind := labelSet{"rack": "r1"}
	seen := labelSet{"rack": "r1", labels.TaintKey("dedicated", "NoSchedule"): "gpu"}
	w, p := e.watcher(), e.processor()
	e.registerWith("kubelet", name, nil, own...)
	e.set(name, "rack", "r1")
	e.saved(name, blind)

	e.stop(p)
	p = e.processor(taintsFlag)
	e.set(name, "also", "1") // a watcher without the flag records that
	e.saved(name, labelSet{"rack": "r1", "also": "1"})
	e.remove(name, "also")
	e.saved(name, blind)
	e.report(name)
	e.stop(w)
	w = e.watcher(taintsFlag)
	e.saved(name, seen) // it records changes that the others have not seen
	e.delete(name)
	e.registerWith("someone", name, nil)
	e.restored(name, labelSet{"rack": "r1"})
	assert.Empty(t, e.taintsOf(t, name), "the kubelet had it, and did not bring it")
	e.taint(name, own...)
	e.saved(name, seen)
	e.delete(name)
	e.registerWith("someone", name, nil)
	e.restored(name, labelSet{"rack": "r1"})
	assert.Equal(t, own, e.taintsOf(t, name), "a person had set it")

	e.stop(w)
	e.watcher()
	e.set(name, "rack", "r2")
	e.saved(name, labelSet{"rack": "r2"})
	e.delete(name)
	e.registerWith("kubelet", name, nil, own...)
	e.restored(name, labelSet{"rack": "r2"})
	assert.Equal(t, own, e.taintsOf(t, name), "an unseen change is not a removal")
	e.stop(p)
	e.processor()
	e.delete(name)
	e.registerWith("kubelet", name, nil, own...)
	e.restored(name, labelSet{"rack": "r2"})
	assert.Equal(t, own, e.taintsOf(t, name))
	e.settle()
}

// TestNoCordonComesBack checks that neither a cordon nor the taints that Kubernetes sets for a
// machine's state are restored, whatever the patterns.
func TestNoCordonComesBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster() // nothing is scheduled there
	name := e.name("node")
	const all = "--preserve-taints=*,*:NoExecute"
	e.watcher(all)
	e.processor(all)
	outOfService := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	e.registerWith("kubectl", name, nil, noSchedule(corev1.TaintNodeUnschedulable, ""), outOfService, noExecute("mine")) // the node is cordoned, too
	e.saved(name, labelSet{labels.TaintKey("mine", "NoExecute"): ""})
	e.delete(name)
	require.NoError(t, e.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	e.restored(name, labelSet{})
	assert.Equal(t, []corev1.Taint{noExecute("mine")}, e.taintsOf(t, name))
	assert.False(t, e.node(t, name).Spec.Unschedulable)
	e.settle()
}

// TestRestartChangesNothingOfWhatIsKept checks that a list of whole Nodes shows the same as the
// records.
func TestRestartChangesNothingOfWhatIsKept(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w, p := e.watcher(annotationsFlag, taintsFlag), e.processor(annotationsFlag, taintsFlag)
	big := strings.Repeat("x", 100_000) + "\n"
	for i, name := range e.names(6) {
		e.registerWith("kubelet", name, map[string]string{"example.com/note": "1"}, noSchedule("dedicated", "gpu"))
		e.taint(name, noSchedule("dedicated", "cpu"), noExecute("example.com/evict"))
		annotate := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/big":`+strconv.Quote(big)+`}}}`))
		require.NoError(t, e.client.Patch(t.Context(), e.node(t, name), annotate, client.FieldOwner("kubectl-annotate")))
		want := labelSet{
			labels.AnnotationKey("example.com/note"): "1", labels.AnnotationKey("example.com/big"): big,
			labels.TaintKey("dedicated", "NoSchedule"): "cpu", labels.TaintKey("example.com/evict", "NoExecute"): "",
		}
		e.saved(name, want)
		if i%2 == 0 {
			continue
		}
		e.delete(name)
		e.registerWith("kubelet", name, map[string]string{"example.com/note": "2"}, noSchedule("dedicated", "gpu"))
		e.restored(name, labelSet{})
		want[labels.AnnotationKey("example.com/note")] = "2"
		e.saved(name, want)
		assert.ElementsMatch(t, []corev1.Taint{noSchedule("dedicated", "cpu"), noExecute("example.com/evict")}, e.taintsOf(t, name), "a person had changed one")
	}
	e.settle()
	e.stop(w)
	e.stop(p)
	before := e.snapshot()
	for range 2 {
		e.watcher(annotationsFlag, taintsFlag)
		e.processor(annotationsFlag, taintsFlag)
	}
	sentinel := e.name("sentinel")
	e.create(sentinel, labelSet{"rack": "r7"})
	e.saved(sentinel, labelSet{"rack": "r7"})
	e.settle()
	after := e.snapshot()
	maps.DeleteFunc(after, func(key, _ string) bool { return strings.HasSuffix(key, " "+sentinel) })
	assert.Equal(t, before, after)
}
