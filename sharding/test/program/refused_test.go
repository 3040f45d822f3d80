package program

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/ports"
)

// governed is the message of a policy that refuses updates.
const governed = "the labels of this object are governed"

// refuse makes the API server refuse updates of an object with the code that a failed test of a
// JSON patch has, until the returned function is called.
func (c *cluster) refuse(resource string, object client.Object) (allow func()) {
	c.t.Helper()
	name := c.namespace + "-" + resource
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name != '" + object.GetName() + "'", Message: governed}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	c.stores(policy, binding)
	allow = func() {
		for _, o := range []client.Object{binding, policy} {
			assert.NoError(c.t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), o)))
		}
	}
	c.t.Cleanup(allow)
	edit := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"any":"edit"}}}`))
	require.Eventually(c.t, func() bool {
		o, ok := object.DeepCopyObject().(client.Object)
		return ok && apierrors.IsInvalid(c.Patch(c.t.Context(), o, edit, client.DryRunAll))
	}, patience, period)
	return allow
}

// TestRefusedWritesAreReported covers R36: the API server answers a write that a policy refuses
// with the same code and reason as a write that has lost a race. Only the former is a failure.
func TestRefusedWritesAreReported(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	address, err := ports.Address()
	require.NoError(t, err)
	p := c.sharder("a", "--sync-period=2s", "--metrics-bind-address="+address)
	ring := c.balanced(c.ring(""), 10, "web-0", "web-1")
	object := c.reread(t, secret(c.namespace, "s-0"))
	allow := c.refuse("secrets", object)
	dies := object.Labels[prefix.ShardLabel(ring.Name)]
	lives := anotherShard[dies]
	c.change(dies, `{"spec":{"holderIdentity":""}}`)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{dies: 1, lives: 9}, c.shardsOf(collect, ring))
		assert.EqualValues(collect, 1, s.Unassigned)
		if balanced := meta.FindStatusCondition(s.Conditions, "Balanced"); assert.NotNil(collect, balanced) {
			assert.Equal(collect, "MovesFailing", balanced.Reason)
			assert.Contains(collect, balanced.Message, governed)
		}
		all, err := metrics.Scrape(t.Context(), address)
		require.NoError(collect, err)
		assert.InDelta(collect, 1, all["sharder_failing_objects"+of(ring)], 0)
	})
	c.event(ring, "MovesFailing")
	assert.Contains(t, p.Output(), governed)
	allow()
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{lives: 10}, c.shardsOf(collect, ring))
		assert.Equal(collect, "Balanced", reasonOf(s, "Balanced"))
	})
}

// TestRefusedRemovalOfLabelsIsReported covers R3 and R36 for a ring that is deleted while a policy
// refuses to change one of its objects.
func TestRefusedRemovalOfLabelsIsReported(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	p := c.sharder("a", "--sync-period=2s")
	ring := c.balanced(c.ring(""), 5, "web-0")
	allow := c.refuse("secrets", secret(c.namespace, "s-0"))
	require.NoError(t, c.Delete(t.Context(), ring))
	require.Eventually(t, func() bool { return strings.Contains(p.Output(), governed) }, patience, period)
	allow()
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(ring), &v1alpha1.ClusterRing{}))
	}, patience, period)
	assert.Equal(t, map[string]int{"": 5}, c.shardsOf(t, ring))
}
