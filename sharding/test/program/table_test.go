package program

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
)

// hasTable waits until the policies have the table in the status of a ring.
func (c *cluster) hasTable(ring *v1alpha1.ClusterRing) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		stored := &v1alpha1.ClusterRing{}
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(ring), stored))
		table := c.table(t, ring)
		require.NotNil(t, table)
		assert.Equal(t, policy.Table(stored, sharderNamespace).Data, table.Data)
		assert.Equal(t, ring.UID, metav1.GetControllerOf(table).UID)
	}, patience, period)
}

// TestTableIsRestored covers R21: the table in the status is the truth. An object that policies have
// placed by another one moves.
func TestTableIsRestored(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.needPolicies()
	p := c.sharder("a")
	ring := c.admitting(c.ring(""), "web-0", "web-1")
	c.hasTable(ring)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.True(t, meta.IsStatusConditionTrue(s.Conditions, "Balanced"))
	})
	require.NoError(t, c.Delete(t.Context(), c.table(t, ring)))
	c.hasTable(ring)

	require.NoError(t, p.Freeze(t.Context()))
	edited := c.table(t, ring)
	edited.Data["rows"] = strings.ReplaceAll(edited.Data["rows"], "1", "0")
	edited.Immutable = new(true)
	require.NoError(t, c.Update(t.Context(), edited))
	misplaced := secret(c.namespace, c.owned(ring, "web-1", ring.Spec.Resources[0]))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		probe := misplaced.DeepCopy()
		require.NoError(collect, c.Create(t.Context(), probe, client.DryRunAll))
		assert.Equal(collect, "web-0", probe.Labels[prefix.ShardLabel(ring.Name)])
	}, patience, period, "the API server has the edited table")
	c.stores(misplaced)
	require.NoError(t, p.Signal(syscall.SIGCONT))
	c.hasTable(ring)
	c.moves(ring, misplaced)
}

// TestTablesOutliveOtherPolicies covers R21: an API server that no longer watches ConfigMaps because
// the last policy of a type with such parameters is deleted never watches them again. The first policy
// here is of another type and owner, and the second the one of the last ring.
func TestTablesOutliveOtherPolicies(t *testing.T) {
	t.Parallel()
	c := ownSite(t)
	c.needPolicies()
	named := metav1.ObjectMeta{Name: "foreign"}
	foreign := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "object.metadata.name != params.data.refused", Message: "refused by this test"}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: named.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		ParamRef: &admissionregistrationv1.ParamRef{Name: "foreign", Namespace: c.namespace, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction)},
	}}
	param := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "foreign"}, Data: map[string]string{"refused": "probe"}}
	c.stores(param, foreign, binding)
	require.Eventually(t, func() bool { return c.Create(t.Context(), secret(c.namespace, "probe"), client.DryRunAll) != nil }, patience, period)
	c.sharder("a")
	first := c.admitting(c.ring("-1"), "web-0")
	require.NoError(t, c.Delete(t.Context(), binding))
	require.NoError(t, c.Delete(t.Context(), foreign))
	require.Eventually(t, func() bool { return c.Create(t.Context(), secret(c.namespace, "probe"), client.DryRunAll) == nil }, patience, period)
	c.admitting(c.ring("-2"), "other-0")
	for _, ring := range []string{"-1", "-2"} {
		require.NoError(t, c.Delete(t.Context(), c.ring(ring)))
		c.hasNoPolicies(c.ring(ring))
	}
	require.Eventually(t, func() bool { // the API server has observed that
		s := secret(c.namespace, "probe")
		require.NoError(t, c.Create(t.Context(), s, client.DryRunAll))
		return s.Labels[prefix.ShardLabel(first.Name)] == ""
	}, patience, period)
	c.admitting(c.ring("-3"), "third-0")
}

// moves waits until an object is drained to web-1.
func (c *cluster) moves(ring *v1alpha1.ClusterRing, o *corev1.Secret) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		assert.Equal(t, "web-1", c.reread(t, o).Labels[prefix.DrainLabel(ring.Name)])
	}, patience, period)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(t, s)
	})
}

// TestTableThatCannotBeWrittenIsReported covers R21: until the ConfigMap is written, policies place
// new objects by the former table. These objects move afterwards.
func TestTableThatCannotBeWrittenIsReported(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.needPolicies()
	proxy := c.behindProxy()
	c.sharder("a", "--sync-period=2s")
	ring := c.admitting(c.ring(""), "web-0")
	heal := proxy.Inject(refuse(func(r *http.Request) bool {
		return r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/configmaps/")
	}))
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Len(t, shares(s, now), 2)
		admitted(t, s, metav1.ConditionFalse, "InstallFailed")
		assert.Equal(t, "Balanced", reasonOf(s, "Balanced"))
	})
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
	misplaced := c.secret(c.owned(ring, "web-1", ring.Spec.Resources[0]))
	require.Equal(t, "web-0", misplaced.Labels[prefix.ShardLabel(ring.Name)], "by the former table")
	heal()
	c.hasTable(ring)
	c.moves(ring, misplaced)
}
