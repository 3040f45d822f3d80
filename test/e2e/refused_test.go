package e2e_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// A policy refuses one label. The others are restored, and it comes back when it is allowed again and
// the node returns.
func TestRefusedLabelHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node, probe := e.name("node"), e.name("probe")
	want := labelSet{"guarded": "yes", "rack": "r7", "team": "blue", "tenant": "a"}
	e.create(probe, nil)
	e.create(node, want)
	e.saved(node, want)
	e.delete(node)
	allow := e.refuse("guarded", "ask the owner of the guarded nodes")
	e.eventually(func(c *assert.CollectT) { assert.Error(c, e.trySet(probe, "guarded")) }, "the policy is in force")

	second := e.create(node, nil)
	e.restored(node, labelSet{"rack": "r7", "team": "blue", "tenant": "a"})
	note := e.warned(second.UID, "LabelRefused")
	assert.Contains(t, note, "guarded: not restored")
	assert.Contains(t, note, "ask the owner of the guarded nodes")
	e.eventually(func(c *assert.CollectT) {
		if r := e.record(c, node); assert.NotNil(c, r) {
			assert.Equal(c, want, r.All(), "it is still saved")
		}
	}, "the restore is noted")

	allow()
	e.eventually(func(c *assert.CollectT) { assert.NoError(c, e.trySet(probe, "guarded")) }, "the policy is gone")
	e.delete(node)
	e.create(node, nil)
	e.restored(node, want)
	e.settle()
	e.hasRestored(t, node, want)
}

// A gate opens although a policy refuses a label of its node.
func TestGateOpensWithoutARefusedLabel(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	node, probe := e.name("node"), e.name("probe")
	want := labelSet{"guarded": "yes", "rack": "r7"}
	e.create(probe, nil)
	e.create(node, want)
	e.saved(node, want)
	e.delete(node)
	e.refuse("guarded", "ask the owner of the guarded nodes")
	e.eventually(func(c *assert.CollectT) { assert.Error(c, e.trySet(probe, "guarded")) }, "the policy is in force")

	gated := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labelSet{labels.Marker: labels.Pending}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{nodeview.StartupTaint()}},
	}
	require.NoError(t, e.client.Create(t.Context(), gated))
	e.restored(node, labelSet{"rack": "r7"})
	assert.False(t, isGated(e.node(t, node)), "the patch that restores the other labels opens it")
	e.eventually(func(c *assert.CollectT) {
		if r := e.record(c, node); assert.NotNil(c, r) && assert.Len(c, r.Withheld, 1) {
			assert.Equal(c, labelSet{"guarded": "yes"}, r.Withheld[0].Labels)
			assert.Contains(c, r.Withheld[0].Refusals["guarded"], "ask the owner of the guarded nodes")
		}
	}, "the refused label is kept with its reason")
}

// A policy refuses every restore, whatever its labels.
func TestRefusedRestoreIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	node := e.name("node")
	want := labelSet{"rack": "r7"}
	e.create(node, want)
	e.saved(node, want)
	e.delete(node)
	allow := e.refuse(labels.Marker, "ask the owner of the marked nodes")
	probe := e.create(e.name("probe"), nil).Name
	e.eventually(func(c *assert.CollectT) { assert.Error(c, e.trySet(probe, labels.Marker)) }, "the policy is in force")
	second := e.create(node, nil)
	assert.Contains(t, e.warned(second.UID, "LabelsRestoreFailed"), "ask the owner of the marked nodes")
	e.eventually(func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, len(complaints(p, "ask the owner of the marked nodes")), 3)
	}, "it is tried again")
	assert.Equal(t, want, e.record(t, node).Labels, "nothing is set aside")
	allow()
	e.restored(node, want)
}

// A policy refuses an annotation, and another one a taint, each of them alone and both.
func TestRefusedTaintAndAnnotationHoldUpNothingElse(t *testing.T) {
	t.Parallel()
	owner, dedicated := labels.AnnotationKey("example.com/owner"), labels.TaintKey("dedicated", "NoSchedule")
	for name, refused := range map[string][]string{"annotation": {owner}, "taint": {dedicated}, "both": {owner, dedicated}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.watcher(annotationsFlag, taintsFlag)
			e.processor(annotationsFlag, taintsFlag)
			node, probe := e.name("node"), e.create(e.name("probe"), nil).Name
			e.registerWith("kubectl", node, map[string]string{"example.com/owner": "team-a", "example.com/rack": "r1"}, noSchedule("dedicated", "gpu"), noExecute("example.com/evict"))
			e.set(node, "rack", "r7")
			all := labelSet{
				"rack": "r7", owner: "team-a", labels.AnnotationKey("example.com/rack"): "r1", dedicated: "gpu", labels.TaintKey("example.com/evict", "NoExecute"): "",
			}
			e.saved(node, all)
			e.delete(node)
			var allow []func()
			for _, key := range refused {
				allow = append(allow, e.refuse(key, "ask the owner of "+key))
				e.eventually(func(c *assert.CollectT) { assert.Error(c, e.trySet(probe, key)) }, "the policy is in force")
			}
			second := e.create(node, nil)
			e.restored(node, labelSet{"rack": "r7"})
			e.warned(second.UID, "LabelRefused")
			annotations := e.node(t, node).Annotations
			assert.Equal(t, "r1", annotations["example.com/rack"])
			isRefused := map[string]bool{owner: slices.Contains(refused, owner), dedicated: slices.Contains(refused, dedicated)}
			assert.Equal(t, isRefused[owner], annotations["example.com/owner"] == "")
			assert.Contains(t, e.taintsOf(t, node), noExecute("example.com/evict"))
			assert.Equal(t, isRefused[dedicated], !slices.Contains(e.taintsOf(t, node), noSchedule("dedicated", "gpu")))
			e.eventually(func(c *assert.CollectT) {
				if r := e.record(c, node); assert.NotNil(c, r) {
					assert.Equal(c, all, r.All(), "it is still saved")
				}
			}, "the restore is noted")

			for i, key := range refused {
				allow[i]()
				e.eventually(func(c *assert.CollectT) { assert.NoError(c, e.trySet(probe, key)) }, "the policy is gone")
			}
			e.delete(node)
			e.create(node, nil)
			e.restored(node, labelSet{"rack": "r7"})
			assert.Equal(t, "team-a", e.node(t, node).Annotations["example.com/owner"])
			assert.ElementsMatch(t, []corev1.Taint{noExecute("example.com/evict"), noSchedule("dedicated", "gpu")}, e.taintsOf(t, node))
		})
	}
}

// refuse makes the API server reject updates of the test's nodes that have a label, an annotation
// or a taint, until allow is called.
func (e *env) refuse(key, message string) (allow func()) {
	e.t.Helper()
	return e.refuseTo(admissionregistrationv1.Update, key, message)
}

// refuseTo does the same for one operation.
func (e *env) refuseTo(operation admissionregistrationv1.OperationType, key, message string) (allow func()) {
	e.t.Helper()
	name := e.prefix + "policy-" + rand.String(5)
	has := `has(object.metadata.labels) && "` + key + `" in object.metadata.labels`
	if annotation, ok := labels.AsAnnotation(key); ok {
		has = `has(object.metadata.annotations) && "` + annotation + `" in object.metadata.annotations`
	} else if taint, _, ok := labels.AsTaint(key); ok {
		has = `has(object.spec.taints) && object.spec.taints.exists(t, t.key == "` + taint + `")`
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{operation},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"},
						},
					},
				}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "nodes-of-this-test", Expression: `object.metadata.name.startsWith("` + e.prefix + `")`,
			}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!(" + has + ")", Message: message,
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	allow = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), patience)
		defer cancel()
		for _, obj := range []client.Object{binding, policy} {
			assert.NoError(e.t, client.IgnoreNotFound(e.client.Delete(ctx, obj)))
		}
	}
	e.t.Cleanup(allow)
	require.NoError(e.t, e.client.Create(e.t.Context(), policy))
	require.NoError(e.t, e.client.Create(e.t.Context(), binding))
	return allow
}

// trySet returns the API server's error for setting a label, an annotation or a taint of a node
// that has no taints, and does not set it.
func (e *env) trySet(name, key string) error {
	node := e.node(e.t, name)
	body := `{"metadata":{"labels":{"` + key + `":"yes"}}}`
	if annotation, ok := labels.AsAnnotation(key); ok {
		body = `{"metadata":{"annotations":{"` + annotation + `":"yes"}}}`
	} else if taint, effect, ok := labels.AsTaint(key); ok {
		body = `{"spec":{"taints":[{"key":"` + taint + `","effect":"` + effect + `"}]}}`
	}
	return e.client.Patch(e.t.Context(), node, client.RawPatch(types.MergePatchType, []byte(body)), client.DryRunAll)
}
