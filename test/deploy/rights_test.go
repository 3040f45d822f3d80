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

// bound is a role that a binding gives to a subject, in a namespace; "" is the whole cluster.
type bound struct {
	subject   rbacv1.Subject
	namespace string
	rules     []rbacv1.PolicyRule
}

// bindings returns what the manifests give to whom.
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

// granted returns what the manifests give to each service account.
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

// audit is what the service accounts have done by an audit log from an offset on.
type audit struct {
	path   string
	offset int64 // where the next look begins
	done   rights
	// forbidden are the requests that were.
	forbidden []string
}

// newAudit begins at the end of the audit log.
func newAudit(t *testing.T, c *cluster) *audit {
	t.Helper()
	info, err := os.Stat(c.auditLog())
	require.NoError(t, err)
	return &audit{path: c.auditLog(), offset: info.Size(), done: rights{}}
}

// look reads what is new since the last look: the log of all the time grows long, and a test looks often.
func (a *audit) look(t require.TestingT) {
	file, err := os.Open(a.path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	_, err = file.Seek(a.offset, io.SeekStart)
	require.NoError(t, err)
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return // the last line may not be whole yet: the next look reads it again
		}
		require.NoError(t, err)
		a.offset += int64(len(line))
		var r request
		if json.Unmarshal(line, &r) == nil { // the first look may begin amid a line
			a.note(r)
		}
	}
}

func (a *audit) note(r request) {
	account, isOurs := strings.CutPrefix(r.User.Username, accountPrefix)
	// What is about no object is discovery. It, and to ask what one may, is allowed to every user.
	if !isOurs || r.ObjectRef == nil || r.ObjectRef.Resource == "selfsubjectaccessreviews" {
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
		one.namespace = "" // a namespace is noted as being in itself
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

// TestWebhookMayReadAndWriteOnlyItsOwn Secret and configuration.
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

// takenBy are the rights that a component takes away from one that is listed before it.
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
