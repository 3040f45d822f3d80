package manifests

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Right permits a service account one verb on a resource in a namespace; "" is the whole cluster.
// The type has no name of its own so that tables of rights do not repeat the names of the fields.
type Right = struct{ Account, Verb, Resource, Namespace string }

// Rights is a set of rights.
type Rights map[Right]bool

// Minus returns the rights that are in none of the others, sorted.
func (r Rights) Minus(others ...Rights) []Right {
	var left []Right
	for one := range r {
		if !slices.ContainsFunc(others, func(other Rights) bool { return other[one] }) {
			left = append(left, one)
		}
	}
	slices.SortFunc(left, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return left
}

// By returns the rights with each right in a namespace replaced by the one for the whole cluster if
// only the latter is granted.
func (r Rights) By(granted Rights) Rights {
	found := Rights{}
	for one := range r {
		everywhere := one
		everywhere.Namespace = ""
		if !granted[one] && granted[everywhere] {
			one = everywhere
		}
		found[one] = true
	}
	return found
}

// ResourceOf returns the name of a resource as in kubectl: leases.coordination.k8s.io.
func ResourceOf(group, resource string) string { return strings.TrimSuffix(resource+"."+group, ".") }

// Bound is a role that a binding grants to a subject, in a namespace; "" is the whole cluster.
type Bound struct {
	Subject   rbacv1.Subject
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// Bindings returns the bindings in the manifests, whose roles must be there. An aggregated
// ClusterRole has the rules of those that it selects.
func Bindings(t *testing.T, objects []Object) []Bound {
	t.Helper()
	var found []Bound
	rules := rulesOf(t, objects)
	bind := func(subjects []rbacv1.Subject, role, namespace string) {
		require.Contains(t, rules, role, "a binding to a role that is not there")
		for _, s := range subjects {
			found = append(found, Bound{s, namespace, rules[role]})
		}
	}
	for _, obj := range objects {
		switch obj.GetKind() {
		case "RoleBinding":
			b := All[rbacv1.RoleBinding](t, []Object{obj}, "RoleBinding")[0]
			role := "/" + b.RoleRef.Name
			if b.RoleRef.Kind == "Role" {
				role = b.Namespace + role
			}
			bind(b.Subjects, role, b.Namespace)
		case "ClusterRoleBinding":
			b := All[rbacv1.ClusterRoleBinding](t, []Object{obj}, "ClusterRoleBinding")[0]
			bind(b.Subjects, "/"+b.RoleRef.Name, "")
		}
	}
	return found
}

// rulesOf returns the rules of each role, by its namespace and name.
func rulesOf(t *testing.T, objects []Object) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, obj := range objects {
		switch obj.GetKind() {
		case "Role":
			r := All[rbacv1.Role](t, []Object{obj}, "Role")[0]
			rules[r.Namespace+"/"+r.Name] = r.Rules
		case "ClusterRole":
			r := All[rbacv1.ClusterRole](t, []Object{obj}, "ClusterRole")[0]
			rules["/"+r.Name] = append(r.Rules, Aggregated(t, objects, &r)...)
		}
	}
	return rules
}

// Aggregated returns the rules that the controller of aggregated ClusterRoles would copy to a role.
func Aggregated(t *testing.T, objects []Object, to *rbacv1.ClusterRole) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	for _, obj := range objects {
		if obj.GetKind() == "ClusterRole" && Selects(to, obj.GetLabels()) {
			rules = append(rules, All[rbacv1.ClusterRole](t, []Object{obj}, "ClusterRole")[0].Rules...)
		}
	}
	return rules
}

// Selects reports whether a ClusterRole aggregates those with the given labels. It supports
// selectors with matchLabels only.
func Selects(to *rbacv1.ClusterRole, labels map[string]string) bool {
	if to.AggregationRule == nil {
		return false
	}
	for _, selector := range to.AggregationRule.ClusterRoleSelectors {
		all := len(selector.MatchLabels) > 0
		for key, value := range selector.MatchLabels {
			all = all && labels[key] == value
		}
		if all {
			return true
		}
	}
	return false
}

// Granted returns the rights that the manifests grant to each service account of some namespaces,
// which must be the only subjects.
func Granted(t *testing.T, objects []Object, namespaces ...string) Rights {
	t.Helper()
	found := Rights{}
	for _, b := range Bindings(t, objects) {
		require.Equal(t, rbacv1.ServiceAccountKind, b.Subject.Kind)
		require.Contains(t, namespaces, b.Subject.Namespace)
		for one := range RightsOf(b.Rules) {
			one.Account, one.Namespace = b.Subject.Name, b.Namespace
			found[one] = true
		}
	}
	return found
}

// RightsOf returns the rights in rules, without account and namespace.
func RightsOf(rules []rbacv1.PolicyRule) Rights {
	found := Rights{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					found[Right{Verb: verb, Resource: ResourceOf(group, resource)}] = true
				}
			}
		}
	}
	return found
}
