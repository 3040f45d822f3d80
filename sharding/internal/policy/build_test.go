package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
)

var (
	secrets     = policy.Resource{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Kind: "Secret"}
	deployments = policy.Resource{GroupResource: v1alpha1.GroupResource{Group: "apps", Resource: "deployments"}, Kind: "Deployment", Status: true}
	nodes       = policy.Resource{GroupResource: v1alpha1.GroupResource{Resource: "nodes"}, Kind: "Node", ClusterScoped: true, Status: true}
)

func builder() *policy.Builder {
	return &policy.Builder{Prefix: v1alpha1.DefaultPrefix, Namespace: "sharder-system", Sharders: []string{`system:it's`}}
}

func ring() *v1alpha1.ClusterRing {
	return &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}, Spec: v1alpha1.ClusterRingSpec{Shards: v1alpha1.Shards{Namespace: "web-system"}}}
}

func TestPoliciesNeverReject(t *testing.T) {
	built := builder().Build(ring(), []policy.Resource{secrets})
	for name, pair := range map[string]policy.Pair{"sharding-assign-web": built.Assign, "sharding-stick-web": built.Stick} {
		assert.Equal(t, name, pair.Policy.Name)
		assert.Equal(t, name, pair.Binding.Name)
		assert.Equal(t, name, pair.Binding.Spec.PolicyName)
		assert.Equal(t, &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, pair.Policy.Spec.ParamKind, "the API server knows it when it starts")
		assert.Equal(t, "sharding-table-web", pair.Binding.Spec.ParamRef.Name)
		assert.Equal(t, "sharder-system", pair.Binding.Spec.ParamRef.Namespace)
		assert.Equal(t, admissionregistrationv1.AllowAction, *pair.Binding.Spec.ParamRef.ParameterNotFoundAction)
		assert.Equal(t, admissionregistrationv1.Ignore, *pair.Policy.Spec.FailurePolicy)
		for _, mutation := range pair.Policy.Spec.Mutations {
			assert.Equal(t, admissionregistrationv1.PatchTypeJSONPatch, mutation.PatchType)
		}
	}
}

func TestRulesCoverResourcesAndTheirStatus(t *testing.T) {
	built := builder().Build(ring(), []policy.Resource{secrets, deployments, nodes})
	named := func(p policy.Pair) (all []string) {
		for _, r := range p.Policy.Spec.MatchConstraints.ResourceRules {
			assert.Equal(t, []string{"*"}, r.APIVersions)
			require.Len(t, r.APIGroups, 1)
			for _, resource := range r.Resources {
				all = append(all, string(r.Operations[0])+" "+r.APIGroups[0]+"/"+resource)
			}
		}
		return all
	}
	assert.ElementsMatch(t, []string{"CREATE /nodes", "CREATE /secrets", "CREATE apps/deployments", "CREATE sharding.nodekeeper.dev/clusterrings"}, named(built.Assign))
	assert.ElementsMatch(t, []string{"UPDATE /nodes", "UPDATE /nodes/status", "UPDATE /secrets", "UPDATE apps/deployments", "UPDATE apps/deployments/status"}, named(built.Stick))
}

func TestPoliciesUseTheSelectorOfTheRing(t *testing.T) {
	r := ring()
	selector := func() *metav1.LabelSelector {
		return builder().Build(r, []policy.Resource{secrets}).Stick.Policy.Spec.MatchConstraints.NamespaceSelector
	}
	require.Len(t, selector().MatchExpressions, 1)
	assert.Equal(t, metav1.LabelSelectorRequirement{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "sharder-system"},
	}, selector().MatchExpressions[0])
	r.Spec.NamespaceSelector = &metav1.LabelSelector{}
	assert.Equal(t, &metav1.LabelSelector{}, selector())
}

func TestRevisionDependsOnTheContent(t *testing.T) {
	resources := []policy.Resource{secrets, deployments}
	first := builder().Build(ring(), resources)
	slices.Reverse(resources)
	assert.Equal(t, first, builder().Build(ring(), resources), "the order does not matter")
	table := ring()
	table.Status.Table = &v1alpha1.Table{Shards: []string{"web-0"}}
	assert.Equal(t, first, builder().Build(table, resources), "the table does not matter")
	assert.NotEqual(t, first.Revision, builder().Build(ring(), resources[:1]).Revision)
	everywhere := ring()
	everywhere.Spec.NamespaceSelector = &metav1.LabelSelector{}
	assert.NotEqual(t, first.Revision, builder().Build(everywhere, resources).Revision)
	assert.LessOrEqual(t, len(first.Revision), 63, "it must be a label value")
}

func TestNamesAreQuoted(t *testing.T) {
	conditions := builder().Build(ring(), []policy.Resource{secrets}).Stick.Policy.Spec.MatchConditions
	assert.True(t, slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool {
		return strings.Contains(c.Expression, `['system:it\'s']`)
	}))
}

// Only the action of a fence depends on whether it audits or denies. It never blocks requests
// because of an error, and has no parameter that an API server could miss.
func TestFence(t *testing.T) {
	r := ring()
	r.Spec.Shards.ServiceAccounts = []string{"operator"}
	r.Spec.Resources = []v1alpha1.Resource{{GroupResource: v1alpha1.GroupResource{Group: "apps", Resource: "deployments"}}, {
		GroupResource:       v1alpha1.GroupResource{Resource: "secrets"},
		ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}, {Group: "coordination.k8s.io", Resource: "leases"}},
	}}
	r.Spec.Fence = v1alpha1.FenceAudit
	audit := builder().BuildFence(r, nil)
	r.Spec.Fence = v1alpha1.FenceDeny
	deny := builder().BuildFence(r, nil)
	assert.Equal(t, audit.Policy, deny.Policy)
	assert.Equal(t, audit.Revision, deny.Revision)
	assert.Equal(t, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}, audit.Binding.Spec.ValidationActions)
	assert.Equal(t, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, deny.Binding.Spec.ValidationActions)
	assert.Equal(t, deny.Policy.Name, deny.Binding.Spec.PolicyName)
	assert.Equal(t, admissionregistrationv1.Ignore, *deny.Policy.Spec.FailurePolicy)
	assert.Nil(t, deny.Policy.Spec.ParamKind)
	var rules []string
	for _, one := range deny.Policy.Spec.MatchConstraints.ResourceRules {
		rules = append(rules, one.APIGroups[0]+" "+strings.Join(one.Resources, ","))
	}
	assert.Equal(t, []string{" configmaps,configmaps/*,secrets,secrets/*", "apps deployments,deployments/*", "sharding.nodekeeper.dev clusterrings"}, rules,
		"shards and the sharder need Leases in order to work")
	r.Spec.Shards.ServiceAccounts = []string{"another"}
	assert.NotEqual(t, deny.Revision, builder().BuildFence(r, nil).Revision)
}
