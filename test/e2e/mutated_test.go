package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/controlplane"
)

// TestRestoreSavesWhatAnAdmissionPluginAdds has a mutating policy that adds a label to a node with
// its first update, which is the restore. No watcher runs to record the label later.
func TestRestoreSavesWhatAnAdmissionPluginAdds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	watcher, processor := e.watcher(), e.processor()
	name := e.name("node")
	e.create(name, labelSet{"team": "blue"})
	e.saved(name, labelSet{"team": "blue"})
	e.stop(processor)
	e.delete(name)
	back := e.create(name, labelSet{})
	e.recorded(back.UID, txn.Added)
	e.stop(watcher)

	probe := e.name("probe")
	e.create(probe, labelSet{})
	end := e.mutate(admissionregistrationv1.Update, `{"stamped": "yes"}`)
	e.eventually(func(c *assert.CollectT) {
		e.set(probe, "at", time.Now().Format("150405.000"))
		assert.Equal(c, "yes", e.node(c, probe).Labels["stamped"])
	}, "the policy is in force")
	e.processor()
	want := labelSet{"team": "blue", "stamped": "yes"}
	e.restored(name, want)
	e.saved(name, want)
	end()
}

// mutate adds labels, the value of a CEL expression, to every node of the test with each operation
// until end is called.
func (e *env) mutate(operation admissionregistrationv1.OperationType, added string) (end func()) {
	e.t.Helper()
	controlplane.NeedMutatingPolicies(e.t, e.kubeconfig)
	meta := metav1.ObjectMeta{Name: e.prefix + "mutate"}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: meta,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{operation},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "nodes-of-this-test", Expression: `object.metadata.name.startsWith("` + e.prefix + `")`,
			}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
					Expression: `Object{metadata: Object.metadata{labels: ` + added + `}}`,
				},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta,
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
	}
	end = func() {
		ctx := context.WithoutCancel(e.t.Context())
		for _, obj := range []client.Object{binding, policy} {
			assert.NoError(e.t, client.IgnoreNotFound(e.client.Delete(ctx, obj)))
		}
	}
	e.t.Cleanup(end)
	require.NoError(e.t, e.client.Create(e.t.Context(), policy))
	require.NoError(e.t, e.client.Create(e.t.Context(), binding))
	return end
}
