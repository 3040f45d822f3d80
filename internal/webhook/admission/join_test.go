package admission_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// The annotations in the request and the saved annotations are legal on their own, but too large
// together.
func TestNodeWhoseAnnotationsDoNotFitJoinsAllTheSame(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{labels.AnnotationKey("example.com/kept"): strings.Repeat("x", 150<<10), "rack": "r1"})})
	var err error
	h.View.Preserved, err = nodeview.ParsePreserved("example.com/kept", "")
	require.NoError(t, err)
	h.Policy.Preserves = h.View.Preserved.Has
	name := serve(t, h)
	n := node(name, nil)
	n.Annotations = set{"example.com/own": strings.Repeat("y", 150<<10)}
	created(t, kubelet(t, name), n)
}

// A user has written a record by hand.
func TestNodeWithAKeptAnnotationThatOnlyNodesAreValidatedFor(t *testing.T) {
	t.Parallel()
	const key = "scheduler.alpha.kubernetes.io/preferAvoidPods"
	h := handler(t, saved{record: recordOf(set{labels.AnnotationKey(key): "no JSON"})})
	var err error
	h.View.Preserved, err = nodeview.ParsePreserved(key, "")
	require.NoError(t, err)
	h.Policy.Preserves = h.View.Preserved.Has
	name := serve(t, h)
	created(t, kubelet(t, name), node(name, nil))
}

// TestOddNodesJoin checks that unusual Nodes join as requested, and with their labels.
func TestOddNodesJoin(t *testing.T) {
	t.Parallel()
	record := recordOf(set{"rack": "r1", "empty": "", "a.b/c_d.e": "v", strings.Repeat("p", 250) + "/" + strings.Repeat("n", 63): strings.Repeat("v", 63)})
	many := set{}
	for i := range 300 {
		many["example.com/own-"+strings.Repeat("i", i%50)+string(rune('a'+i%26))] = "x"
	}
	var managers []metav1.ManagedFieldsEntry
	for i := range 40 {
		managers = append(managers, metav1.ManagedFieldsEntry{
			Manager: "m" + strings.Repeat("x", i), Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:rack":{}}}}`),
		})
	}
	webhooks := metav1.ManagedFieldsEntry{
		Manager: "nodekeeper-webhook", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:rack":{},"f:labels_restored":{}}}}`),
	}
	for what, odd := range map[string]func(n *corev1.Node){
		"nothing":     func(*corev1.Node) {},
		"empty maps":  func(n *corev1.Node) { n.Labels, n.Annotations = set{}, set{} },
		"many labels": func(n *corev1.Node) { n.Labels = many },
		"tildes":      func(n *corev1.Node) { n.Annotations = set{"example.com/a": "~0~1/", "a": "~"} },
		"taints": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoExecute"}, {Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: nodeview.StartupTaintKey, Effect: "NoExecute"}}
		},
		"many managers": func(n *corev1.Node) { n.ManagedFields = managers },
		"no managers":   func(n *corev1.Node) { n.ManagedFields = []metav1.ManagedFieldsEntry{{}} },
		"itself manager": func(n *corev1.Node) {
			n.ManagedFields = []metav1.ManagedFieldsEntry{webhooks, webhooks}
			n.Labels = set{labels.Marker: "69"}
		},
		"another marker": func(n *corev1.Node) { n.Labels = set{labels.Marker: "x"} },
		"a finalizer":    func(n *corev1.Node) { n.Finalizers = []string{"example.com/x"} },
	} {
		for _, gate := range []bool{false, true} {
			h := handler(t, saved{record: record})
			h.Gate = gate
			name := serve(t, h)
			n := node(name, nil)
			odd(n)
			c := kubelet(t, name)
			if n.Finalizers != nil {
				c = adminClient(t)
			}
			if !assert.NoError(t, c.Create(t.Context(), n), what) {
				continue
			}
			assert.Equal(t, "r1", n.Labels["rack"], what)
			assert.Equal(t, gate, hasGate(n), what)
			n.Finalizers = nil
			require.NoError(t, adminClient(t).Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			require.NoError(t, adminClient(t).Delete(t.Context(), n))
		}
	}
}

// TestAppliedNodeJoins checks a Node that is created by server-side apply.
func TestAppliedNodeJoins(t *testing.T) {
	t.Parallel()
	h := handler(t, saved{record: recordOf(set{"rack": "r1"})})
	h.Gate = true
	name := serve(t, h)
	apply := func() {
		body := []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `","labels":{"own":"1"}}}`)
		require.NoError(t, adminClient(t).Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("somebody")))
	}
	apply()
	n := &corev1.Node{}
	require.NoError(t, adminClient(t).Get(t.Context(), types.NamespacedName{Name: name}, n))
	assert.Equal(t, "r1", n.Labels["rack"])
	assert.True(t, hasGate(n))
	apply()
	require.NoError(t, adminClient(t).Get(t.Context(), types.NamespacedName{Name: name}, n))
	assert.Equal(t, "r1", n.Labels["rack"])
	assert.Equal(t, labels.Pending, n.Labels[labels.Marker])
	assert.True(t, hasGate(n))
	require.NoError(t, adminClient(t).Delete(t.Context(), n))
}
