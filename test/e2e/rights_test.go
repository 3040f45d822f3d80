package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rights are the rules that a user gets in each namespace; "" means the whole cluster.
type rights map[string][]rbacv1.PolicyRule

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// seeNamespaces lets a program check that its namespaces exist.
func (e *env) seeNamespaces() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"},
		ResourceNames: []string{e.transactions, e.metadata, e.members},
	}
}

// leastRights returns the rights without which a watcher or a processor cannot work. They include
// events, which are optional.
func (e *env) leastRights(program string) rights {
	events := rule("events.k8s.io", "events", "create", "patch")
	leases := rule("coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "delete")
	all := map[string]rights{
		"watcher": {
			"":                      {e.seeNamespaces(), rule("", "nodes", "get", "list", "watch")},
			e.transactions:          {rule("", "configmaps", "create", "get", "list", "watch", "patch")},
			e.metadata:              {rule("", "configmaps", "list", "watch")},
			e.members:               {leases},
			metav1.NamespaceDefault: {events},
		},
		"processor": {
			"": {e.seeNamespaces(), rule("", "nodes", "get", "patch", "list")},
			e.transactions: {
				rule("", "configmaps", "get", "list", "watch", "create", "patch", "delete"),
				rule("coordination.k8s.io", "leases", "get", "list", "create", "update", "delete"),
				events,
			},
			e.metadata: {
				rule("", "configmaps", "get", "list", "watch", "create", "update", "patch", "delete"),
				rule("coordination.k8s.io", "leases", "get", "create", "update"), // with --retention
				events,
			},
			e.members:               {leases},
			metav1.NamespaceDefault: {events},
		},
	}
	return all[program]
}

func TestLeastRightsAreEnough(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createNamespaces()
	watcher := e.start("watcher", e.kubeconfigOf(e.leastRights("watcher")))
	// The end of a node is saved after nine times --save-delay.
	processor := e.start("processor", e.kubeconfigOf(e.leastRights("processor")), "--retention=30s", "--save-delay=1s")
	e.ready(watcher)
	e.ready(processor)
	name, away := e.name("node"), e.name("away")
	bad := e.malformedOf(name)
	for _, m := range bad {
		require.NoError(t, e.client.Create(t.Context(), m.cm))
	}
	want := labelSet{"rack": "r7", "team": "blue"}

	e.create(away, want)
	e.saved(away, want)
	e.delete(away)
	e.create(name, labelSet{"rack": "r7"})
	for range 2 {
		e.set(name, "team", "blue")
		e.delete(name)
		e.create(name, nil)
		e.restored(name, want)
	}
	for _, m := range bad {
		e.warned(e.quarantined(m.cm).UID, "TransactionMalformed")
	}
	e.eventually(func(c *assert.CollectT) { assert.Nil(c, e.record(c, away)) }, "the record of the node that stays away is removed")
	e.settle()
	e.stop(processor)

	assert.NotContains(t, watcher.Output(), "forbidden")
	assert.NotContains(t, processor.Output(), "forbidden")
}

func TestLeastRightsAreEnoughToProtect(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.ownCluster()
	e.createNamespaces()
	r := e.leastRights("processor")
	r[""] = append(r[""], rule("", "nodes", "watch"))
	p := e.start("processor", e.kubeconfigOf(r), "--protect=finalizer")
	e.ready(p)
	name := e.name("node")
	e.create(name, labelSet{"rack": "r7"})
	e.protected(name)
	e.delete(name)
	e.gone(name)
	e.saved(name, labelSet{"rack": "r7"})
	assert.NotContains(t, p.Output(), "forbidden")
}

func TestEventsAreNotNeeded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.createNamespaces()
	for _, program := range []string{"watcher", "processor"} {
		r := e.leastRights(program)
		delete(r, metav1.NamespaceDefault)
		e.ready(e.start(program, e.kubeconfigOf(r)))
	}
	name := e.name("node")
	want := labelSet{"rack": "r7"}
	e.create(name, want)
	e.delete(name)
	e.create(name, nil)
	e.restored(name, want)
	e.settle()
}

// createNamespaces creates the namespaces for programs that may not.
func (e *env) createNamespaces() {
	e.t.Helper()
	for _, name := range []string{e.transactions, e.metadata, e.members} {
		require.NoError(e.t, e.client.Create(e.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// kubeconfigOf returns the path of a kubeconfig of a new user with these rights. Impersonation
// works on any cluster.
func (e *env) kubeconfigOf(r rights) string {
	e.t.Helper()
	user := e.prefix + "user-" + rand.String(4)
	e.grant(user, r)
	return e.kubeconfigAs(user)
}

// grant gives a user these rights in addition to the existing ones.
func (e *env) grant(user string, r rights) {
	e.t.Helper()
	for namespace, rules := range r {
		name := user + "-" + rand.String(4)
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
		meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
		objects := []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref},
		}
		if namespace == "" {
			ref.Kind = "ClusterRole"
			objects = []client.Object{
				&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
				&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref},
			}
		}
		for _, obj := range objects {
			require.NoError(e.t, e.client.Create(e.t.Context(), obj))
			e.t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(e.t.Context()), patience)
				defer cancel()
				assert.NoError(e.t, client.IgnoreNotFound(e.client.Delete(ctx, obj)))
			})
		}
	}
	e.eventually(func(c *assert.CollectT) {
		for namespace, rules := range r {
			for _, rule := range rules {
				assert.True(c, e.allows(c, user, namespace, rule), "%v in namespace %q", rule, namespace)
			}
		}
	}, "the API server knows the rights of %s", user)
}

// allows reports whether a user may perform the actions of a rule.
func (e *env) allows(t require.TestingT, user, namespace string, rule rbacv1.PolicyRule) bool {
	for _, verb := range rule.Verbs {
		about := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0]}
		if len(rule.ResourceNames) > 0 {
			about.Name = rule.ResourceNames[0]
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: about}}
		require.NoError(t, e.client.Create(e.t.Context(), review))
		if !review.Status.Allowed {
			return false
		}
	}
	return true
}

// kubeconfigAs returns the path of a kubeconfig that impersonates a user.
func (e *env) kubeconfigAs(user string) string {
	e.t.Helper()
	return e.kubeconfigWith(func(cfg *clientcmdapi.Config) {
		for _, admin := range cfg.AuthInfos {
			admin.Impersonate = user
		}
	})
}

// kubeconfigWith returns the path of a modified copy of the cluster's kubeconfig.
func (e *env) kubeconfigWith(change func(*clientcmdapi.Config)) string {
	e.t.Helper()
	cfg, err := clientcmd.LoadFromFile(e.kubeconfig)
	require.NoError(e.t, err)
	require.NoError(e.t, clientcmdapi.FlattenConfig(cfg)) // its paths to other files are relative to it
	change(cfg)
	path := filepath.Join(e.t.TempDir(), "kubeconfig")
	require.NoError(e.t, clientcmd.WriteToFile(*cfg, path))
	require.NoError(e.t, os.Chmod(path, 0o600))
	return path
}
