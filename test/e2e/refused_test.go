package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestRefusedRestoreIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	p := e.processor()
	node, other, probe := e.name("node"), e.name("other"), e.name("probe")
	want := labelSet{"guarded": "yes", "rack": "r7"}
	e.create(probe, nil)
	e.create(node, want)
	e.create(other, labelSet{"rack": "r8"})
	for _, name := range []string{node, other} {
		e.delete(name)
	}
	allow := e.refuse("guarded", "ask the owner of the guarded nodes")
	e.eventually(func(c *assert.CollectT) { assert.Error(c, e.trySet(probe, "guarded")) }, "the policy is in force")

	second := e.create(node, nil)
	e.create(other, nil)

	e.restored(other, labelSet{"rack": "r8"})
	assert.Contains(t, e.warned(second.UID, "LabelsRestoreFailed"), "ask the owner of the guarded nodes")
	e.eventually(func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, len(complaints(p, "ask the owner of the guarded nodes")), 3)
	}, "it is tried again")
	own, marker := e.labels(t, node)
	assert.Empty(t, own, "all or nothing")
	assert.Empty(t, marker)

	allow()
	e.restored(node, want)
	e.settle()
	e.hasRestored(t, node, want)
}

// refuse makes the API server reject updates of the test's nodes that have a label, until allow is
// called.
func (e *env) refuse(key, message string) (allow func()) {
	e.t.Helper()
	return e.refuseTo(admissionregistrationv1.Update, key, message)
}

// refuseTo does the same for one operation.
func (e *env) refuseTo(operation admissionregistrationv1.OperationType, key, message string) (allow func()) {
	e.t.Helper()
	name := e.prefix + "policy"
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
				Expression: `!has(object.metadata.labels) || !("` + key + `" in object.metadata.labels)`, Message: message,
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

// trySet returns the API server's error for setting a label on a node, and does not set it.
func (e *env) trySet(name, key string) error {
	node := e.node(e.t, name)
	body := []byte(`{"metadata":{"labels":{"` + key + `":"yes"}}}`)
	return e.client.Patch(e.t.Context(), node, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
}
