package deploy_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

// right is that a service account may do something with a kind of objects in a namespace; "" is the whole cluster.
type right struct{ account, verb, resource, namespace string }

// rights is a set of them.
type rights map[right]bool

// minus returns, sorted, what is not in any of the others.
func (r rights) minus(others ...rights) []right {
	var left []right
	for one := range r {
		if !slices.ContainsFunc(others, func(other rights) bool { return other[one] }) {
			left = append(left, one)
		}
	}
	slices.SortFunc(left, func(a, b right) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.namespace, b.namespace),
			cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	return left
}

// resourceOf names a resource as kubectl does: leases.coordination.k8s.io.
func resourceOf(group, resource string) string { return strings.TrimSuffix(resource+"."+group, ".") }

// accountPrefix begins the user names of the service accounts of the manifests.
const accountPrefix = "system:serviceaccount:" + systemNamespace + ":"

// granted returns what the manifests give to each service account.
func granted(t *testing.T, objects []object) rights {
	t.Helper()
	found := rights{}
	grant := func(subjects []rbacv1.Subject, rules []rbacv1.PolicyRule, namespace string) {
		require.NotEmpty(t, rules, "a binding to a role that is not there")
		for _, s := range subjects {
			require.Equal(t, rbacv1.ServiceAccountKind, s.Kind)
			require.Equal(t, systemNamespace, s.Namespace)
			for one := range rightsOf(rules) {
				one.account, one.namespace = s.Name, namespace
				found[one] = true
			}
		}
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range all[rbacv1.Role](t, objects, "Role") {
		rules[r.Namespace+"/"+r.Name] = r.Rules
	}
	for _, r := range all[rbacv1.ClusterRole](t, objects, "ClusterRole") {
		rules["/"+r.Name] = r.Rules
	}
	for _, b := range all[rbacv1.RoleBinding](t, objects, "RoleBinding") {
		require.Equal(t, "Role", b.RoleRef.Kind)
		grant(b.Subjects, rules[b.Namespace+"/"+b.RoleRef.Name], b.Namespace)
	}
	for _, b := range all[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
		grant(b.Subjects, rules["/"+b.RoleRef.Name], "")
	}
	return found
}

// rightsOf returns what rules allow, of no account and no namespace.
func rightsOf(rules []rbacv1.PolicyRule) rights {
	found := rights{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					found[right{verb: verb, resource: resourceOf(group, resource)}] = true
				}
			}
		}
	}
	return found
}

// request is what the API server notes of one.
type request struct {
	User           struct{ Username string }
	Verb           string
	RequestURI     string
	ObjectRef      *struct{ Resource, Subresource, Namespace, APIGroup string }
	ResponseStatus struct{ Code int }
}

// auditLogSize returns how long the audit log is now, in bytes.
func auditLogSize(t require.TestingT) int64 {
	info, err := os.Stat(auditLog)
	require.NoError(t, err)
	return info.Size()
}

// used returns what the service accounts have done by the audit log from an offset on, and the requests that were forbidden.
func used(t require.TestingT, from int64) (found rights, forbidden []string) {
	content, err := os.ReadFile(auditLog)
	require.NoError(t, err)
	found = rights{}
	lines := bufio.NewScanner(bytes.NewReader(content[from:]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // the last line may not be whole yet
		}
		account, isOurs := strings.CutPrefix(r.User.Username, accountPrefix)
		// What is about no object is discovery. It, and to ask what one may, is allowed to every user.
		if !isOurs || r.ObjectRef == nil || r.ObjectRef.Resource == "selfsubjectaccessreviews" {
			continue
		}
		if r.ResponseStatus.Code == http.StatusForbidden {
			forbidden = append(forbidden, account+" "+r.Verb+" "+r.RequestURI)
			continue
		}
		one := right{account, r.Verb, resourceOf(r.ObjectRef.APIGroup, r.ObjectRef.Resource), r.ObjectRef.Namespace}
		if r.ObjectRef.Subresource != "" {
			one.resource += "/" + r.ObjectRef.Subresource
		}
		if one.resource == "namespaces" {
			one.namespace = "" // a namespace is noted as being in itself
		}
		found[one] = true
	}
	require.NoError(t, lines.Err())
	return found, forbidden
}

func TestClusterRolesAreForNodesAndOurNamespacesOnly(t *testing.T) {
	for _, role := range all[rbacv1.ClusterRole](t, render(t, base), "ClusterRole") {
		for one := range rightsOf(role.Rules) {
			assert.Contains(t, []string{"nodes", "namespaces"}, one.resource, "role %s", role.Name)
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "namespaces") {
				assert.ElementsMatch(t, []string{transactions, metadata, systemNamespace}, rule.ResourceNames)
				assert.Equal(t, []string{"get"}, rule.Verbs)
			}
		}
	}
}

// onlyWith are the rights that a component brings: those that no other flag needs.
var onlyWith = map[string]rights{
	withRetention: {
		{"processor", "patch", "configmaps", metadata}:                  true,
		{"processor", "delete", "configmaps", metadata}:                 true,
		{"processor", "get", "leases.coordination.k8s.io", metadata}:    true,
		{"processor", "create", "leases.coordination.k8s.io", metadata}: true,
		{"processor", "update", "leases.coordination.k8s.io", metadata}: true,
	},
	withProtection: {{"processor", "watch", "nodes", ""}: true},
}

func TestComponentsBringTheirRightsAndNothingElseDoes(t *testing.T) {
	ofBase := granted(t, render(t, base))
	for _, v := range variants {
		want := maps.Clone(ofBase)
		for _, component := range v.all() {
			for one := range onlyWith[component] {
				require.NotContains(t, ofBase, one, "the base gives what only %s needs", component)
				want[one] = true
			}
		}
		assert.Equal(t, want, granted(t, v.render(t)), v)
	}
}
