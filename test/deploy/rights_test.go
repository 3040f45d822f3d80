package deploy_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"nodekeeper.dev/test/manifests"
)

// right and rights are short for tables.
type (
	right  = manifests.Right
	rights = manifests.Rights
)

// granted returns the rights that the manifests grant to each service account.
func granted(t *testing.T, objects []object) rights {
	t.Helper()
	return manifests.Granted(t, objects, systemNamespace)
}

func TestClusterRolesAreForNodesAndOurNamespacesOnly(t *testing.T) {
	t.Parallel()
	for _, role := range all[rbacv1.ClusterRole](t, render(t, base), "ClusterRole") {
		for one := range manifests.RightsOf(role.Rules) {
			assert.Contains(t, []string{"nodes", "namespaces"}, one.Resource, "role %s", role.Name)
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "namespaces") {
				assert.ElementsMatch(t, []string{transactions, metadata, systemNamespace}, rule.ResourceNames)
				assert.Equal(t, []string{"get"}, rule.Verbs)
			}
		}
	}
}

// TestWebhookMayReadAndWriteOnlyItsOwn checks its Secret and configuration.
func TestWebhookMayReadAndWriteOnlyItsOwn(t *testing.T) {
	t.Parallel()
	names := map[string][]string{
		"secrets": {"webhook-certificate"}, "mutatingwebhookconfigurations": {"nodekeeper"},
		"namespaces": {transactions, metadata, systemNamespace}, "configmaps": nil, "leases": nil,
	}
	check := func(role string, rules []rbacv1.PolicyRule) {
		if role != "nodekeeper-webhook" {
			return
		}
		for _, rule := range rules {
			require.Len(t, rule.Resources, 1)
			require.Contains(t, names, rule.Resources[0])
			assert.Equal(t, names[rule.Resources[0]], rule.ResourceNames, rule.Resources[0])
		}
	}
	objects := variant{base, []string{withAdmission}}.render(t)
	for _, r := range all[rbacv1.Role](t, objects, "Role") {
		check(r.Name, r.Rules)
	}
	for _, r := range all[rbacv1.ClusterRole](t, objects, "ClusterRole") {
		check(r.Name, r.Rules)
	}
}

// onlyWith are the rights that a component adds, and that no other flag needs.
var onlyWith = map[string]rights{
	withRetention: {
		{"processor", "patch", "configmaps", metadata}:                  true,
		{"processor", "delete", "configmaps", metadata}:                 true,
		{"processor", "get", "leases.coordination.k8s.io", metadata}:    true,
		{"processor", "create", "leases.coordination.k8s.io", metadata}: true,
		{"processor", "update", "leases.coordination.k8s.io", metadata}: true,
	},
	withProtection: {{"processor", "watch", "nodes", ""}: true},
	withAdmission: {
		{"webhook", "get", "namespaces", ""}:             true,
		{"webhook", "list", "configmaps", metadata}:      true,
		{"webhook", "watch", "configmaps", metadata}:     true,
		{"webhook", "get", "secrets", systemNamespace}:   true,
		{"webhook", "list", "secrets", systemNamespace}:  true,
		{"webhook", "watch", "secrets", systemNamespace}: true,
		{"webhook", "patch", "secrets", systemNamespace}: true,
		{"webhook", "get", webhookConfigurations, ""}:    true,
		{"webhook", "list", webhookConfigurations, ""}:   true,
		{"webhook", "watch", webhookConfigurations, ""}:  true,
		{"webhook", "patch", webhookConfigurations, ""}:  true,

		{"webhook", "get", "leases.coordination.k8s.io", systemNamespace}:    true,
		{"webhook", "list", "leases.coordination.k8s.io", systemNamespace}:   true,
		{"webhook", "watch", "leases.coordination.k8s.io", systemNamespace}:  true,
		{"webhook", "create", "leases.coordination.k8s.io", systemNamespace}: true,
		{"webhook", "update", "leases.coordination.k8s.io", systemNamespace}: true,
		{"webhook", "delete", "leases.coordination.k8s.io", systemNamespace}: true,
	},
}

const webhookConfigurations = "mutatingwebhookconfigurations.admissionregistration.k8s.io"

// takenBy are the rights that a component removes from one that precedes it in the list.
var takenBy = map[string]rights{
	withCertManager: {
		{"webhook", "patch", "secrets", systemNamespace}: true,
		{"webhook", "get", webhookConfigurations, ""}:    true,
		{"webhook", "list", webhookConfigurations, ""}:   true,
		{"webhook", "watch", webhookConfigurations, ""}:  true,
		{"webhook", "patch", webhookConfigurations, ""}:  true,
	},
}

func TestComponentsBringTheirRightsAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	ofBase := granted(t, render(t, base))
	for _, v := range variants {
		want := maps.Clone(ofBase)
		for _, component := range v.all() {
			for one := range onlyWith[component] {
				require.NotContains(t, ofBase, one, "the base gives what only %s needs", component)
				want[one] = true
			}
			for one := range takenBy[component] {
				delete(want, one)
			}
		}
		assert.Equal(t, want, granted(t, v.render(t)), v)
	}
}
