package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/test/controlplane"
)

// user is a user whose permissions a test grants.
type user struct {
	name, kubeconfig string
	client           client.Client
}

func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{name: "user-" + rand.String(8)}
	var err error
	u.kubeconfig, err = api.KubeconfigFor(u.name)
	require.NoError(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", u.kubeconfig)
	require.NoError(t, err)
	u.client, err = client.New(cfg, client.Options{})
	require.NoError(t, err)
	return u
}

// grant grants permissions to the user and returns when they are effective.
func (u *user) grant(t *testing.T, permissions ...daemon.Permission) {
	t.Helper()
	c := newClient(t)
	for _, p := range permissions {
		meta := metav1.ObjectMeta{Name: u.name + "-" + rand.String(8), Namespace: p.Namespace}
		rules := []rbacv1.PolicyRule{{Verbs: []string{p.Verb}, APIGroups: []string{p.Group}, Resources: []string{p.Resource}}}
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: u.name}}
		role, binding := client.Object(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}),
			client.Object(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}})
		if p.Namespace != "" {
			role = &rbacv1.Role{ObjectMeta: meta, Rules: rules}
			binding = &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}}
		}
		require.NoError(t, c.Create(t.Context(), role))
		require.NoError(t, c.Create(t.Context(), binding))
	}
	for _, p := range permissions {
		require.Eventually(t, func() bool { return u.may(t, p) }, patience, 10*time.Millisecond, "the user may %s", p)
	}
}

func (u *user) may(t *testing.T, p daemon.Permission) bool {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: p.Namespace, Verb: p.Verb, Group: p.Group, Resource: p.Resource},
	}}
	require.NoError(t, u.client.Create(t.Context(), review))
	return review.Status.Allowed
}

// check creates a service as the user.
func (u *user) check(ctx context.Context, transactions, records string, needed ...daemon.Permission) error {
	_, err := service.New(ctx, service.Config{
		Program: "watcher", Permissions: needed,
		Options: &service.Options{
			Options:              daemon.Options{Kubeconfig: u.kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: "0"},
			TransactionNamespace: transactions, MetadataNamespace: records, MembershipNamespace: records,
		},
	})
	return err
}

func TestEveryMissingPermissionIsListed(t *testing.T) {
	c, u := newClient(t), newUser(t)
	transactions, records := controlplane.Namespace(t, c), controlplane.Namespace(t, c)
	nodes := daemon.Permissions("", "nodes", "", "list", "watch")
	maps := daemon.Permissions("", "configmaps", transactions, "create", "get")
	leases := daemon.Permissions("coordination.k8s.io", "leases", records, "update")
	needed := append(append(append([]daemon.Permission{}, nodes...), maps...), leases...)
	u.grant(t, daemon.Permissions("", "namespaces", "", "get")...)

	require.EqualError(t, u.check(t.Context(), transactions, records, needed...),
		"this identity may not list nodes, nor watch nodes, nor create configmaps in namespace "+transactions+
			", nor get configmaps in namespace "+transactions+", nor update leases.coordination.k8s.io in namespace "+records+
			": grant it by a Role or ClusterRole")
	u.grant(t, nodes[0], maps[0], leases[0])
	require.EqualError(t, u.check(t.Context(), transactions, records, needed...),
		"this identity may not watch nodes, nor get configmaps in namespace "+transactions+": grant it by a Role or ClusterRole")
	u.grant(t, nodes[1], maps[1])
	require.NoError(t, u.check(t.Context(), transactions, records, needed...))
}

func TestMissingPermissionNamesItsComponent(t *testing.T) {
	c, u := newClient(t), newUser(t)
	transactions, records := controlplane.Namespace(t, c), controlplane.Namespace(t, c)
	u.grant(t, daemon.Permissions("", "namespaces", "", "get")...)
	needed := append(daemon.Permissions("", "nodes", "", "get"),
		daemon.GrantedBy("deploy/components/protection", daemon.Permissions("", "nodes", "", "watch"))...)
	require.EqualError(t, u.check(t.Context(), transactions, records, needed...),
		"this identity may not get nodes, nor watch nodes (deploy/components/protection grants it): grant it by a Role or ClusterRole")
}

func TestPermissionInAnotherNamespaceDoesNotCount(t *testing.T) {
	c, u := newClient(t), newUser(t)
	transactions, records := controlplane.Namespace(t, c), controlplane.Namespace(t, c)
	u.grant(t, daemon.Permissions("", "namespaces", "", "get")...)
	u.grant(t, daemon.Permissions("", "configmaps", transactions, "get")...)
	require.ErrorContains(t, u.check(t.Context(), transactions, records, daemon.Permissions("", "configmaps", records, "get")...),
		"may not get configmaps in namespace "+records)
	require.ErrorContains(t, u.check(t.Context(), transactions, records, daemon.Permissions("", "configmaps", "", "get")...),
		"may not get configmaps: ")
}

func TestMissingNamespacesAreCreated(t *testing.T) {
	u := newUser(t)
	transactions, records := "transactions-"+rand.String(8), "records-"+rand.String(8)
	u.grant(t, daemon.Permissions("", "namespaces", "", "get", "create")...)
	for range 2 { // the second time they exist
		require.NoError(t, u.check(t.Context(), transactions, records))
	}
	c := newClient(t)
	for _, name := range []string{transactions, records} {
		ns := &corev1.Namespace{}
		require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: name}, ns))
		assert.NoError(t, c.Delete(t.Context(), ns))
	}
}

func TestForbiddenNamespaceCreationIsReportedWithAdvice(t *testing.T) {
	name := "missing-" + rand.String(8)
	u := newUser(t)
	u.grant(t, daemon.Permissions("", "namespaces", "", "get")...)
	err := u.check(t.Context(), name, name+"-2")
	require.ErrorContains(t, err, "namespace "+name+" is missing: run kubectl create namespace "+name+", or let this identity create namespaces")
	assert.ErrorContains(t, err, u.name)
}

// The namespace may exist.
func TestForbiddenNamespaceReadIsMissingPermission(t *testing.T) {
	u := newUser(t)
	require.EqualError(t, u.check(t.Context(), "unseen", "unseen-2", daemon.Permissions("", "nodes", "", "get")...),
		"this identity may not get namespaces, nor get nodes: grant it by a Role or ClusterRole")
}
