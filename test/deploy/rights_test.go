package deploy_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
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

// right permits a service account one verb on a resource in a namespace; "" is the whole cluster.
type right struct{ account, verb, resource, namespace string }

// rights is a set of them.
type rights map[right]bool

// minus returns the rights that are in none of the others, sorted.
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

// resourceOf returns the name of a resource as in kubectl: leases.coordination.k8s.io.
func resourceOf(group, resource string) string { return strings.TrimSuffix(resource+"."+group, ".") }

// accountPrefix is the prefix of the user names of the service accounts.
const accountPrefix = "system:serviceaccount:" + systemNamespace + ":"

// bound is a role that a binding grants to a subject, in a namespace; "" is the whole cluster.
type bound struct {
	subject   rbacv1.Subject
	namespace string
	rules     []rbacv1.PolicyRule
}

// bindings returns the bindings in the manifests.
func bindings(t *testing.T, objects []object) []bound {
	t.Helper()
	var found []bound
	bind := func(subjects []rbacv1.Subject, rules []rbacv1.PolicyRule, namespace string) {
		require.NotEmpty(t, rules, "a binding to a role that is not there")
		for _, s := range subjects {
			found = append(found, bound{s, namespace, rules})
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
		bind(b.Subjects, rules[b.Namespace+"/"+b.RoleRef.Name], b.Namespace)
	}
	for _, b := range all[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
		bind(b.Subjects, rules["/"+b.RoleRef.Name], "")
	}
	return found
}

// granted returns the rights that the manifests grant to each service account.
func granted(t *testing.T, objects []object) rights {
	t.Helper()
	found := rights{}
	for _, b := range bindings(t, objects) {
		require.Equal(t, rbacv1.ServiceAccountKind, b.subject.Kind)
		require.Equal(t, systemNamespace, b.subject.Namespace)
		for one := range rightsOf(b.rules) {
			one.account, one.namespace = b.subject.Name, b.namespace
			found[one] = true
		}
	}
	return found
}

// rightsOf returns the rights in rules, without account and namespace.
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

// request is an entry of the audit log.
type request struct {
	User           struct{ Username string }
	Verb           string
	RequestURI     string
	ObjectRef      *struct{ Resource, Subresource, Namespace, APIGroup string }
	ResponseStatus struct{ Code int }
}

// audit collects the requests of the service accounts from the audit log, starting at an offset.
type audit struct {
	path   string
	offset int64 // where the next read starts
	done   rights
	// forbidden are the requests that were forbidden.
	forbidden []string
}

// newAudit starts at the end of the audit log.
func newAudit(t *testing.T, c *cluster) *audit {
	t.Helper()
	info, err := os.Stat(c.auditLog())
	require.NoError(t, err)
	return &audit{path: c.auditLog(), offset: info.Size(), done: rights{}}
}

// update reads the new entries. The log grows long, and tests poll often.
func (a *audit) update(t require.TestingT) {
	file, err := os.Open(a.path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	_, err = file.Seek(a.offset, io.SeekStart)
	require.NoError(t, err)
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return // the last line may be incomplete: the next call reads it again
		}
		require.NoError(t, err)
		a.offset += int64(len(line))
		var r request
		if json.Unmarshal(line, &r) == nil { // the first line may be incomplete
			a.note(r)
		}
	}
}

func (a *audit) note(r request) {
	account, found := strings.CutPrefix(r.User.Username, accountPrefix)
	// A request without an object is discovery. Every user is allowed to discover, and to review their
	// own permissions.
	if !found || r.ObjectRef == nil || r.ObjectRef.Resource == "selfsubjectaccessreviews" {
		return
	}
	if r.ResponseStatus.Code == http.StatusForbidden {
		a.forbidden = append(a.forbidden, account+" "+r.Verb+" "+r.RequestURI)
		return
	}
	one := right{account, r.Verb, resourceOf(r.ObjectRef.APIGroup, r.ObjectRef.Resource), r.ObjectRef.Namespace}
	if r.ObjectRef.Subresource != "" {
		one.resource += "/" + r.ObjectRef.Subresource
	}
	if one.resource == "namespaces" {
		one.namespace = "" // the audit log reports a namespace as being in itself
	}
	a.done[one] = true
}

func TestClusterRolesAreForNodesAndOurNamespacesOnly(t *testing.T) {
	t.Parallel()
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
