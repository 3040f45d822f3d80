package deploy_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/processor/retention"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/manifests"
)

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
	// writeResource is the resource for which the policies require the verb write.
	writeResource = "labels.nodekeeper.dev"
	// needed is part of every message of the policies that require it.
	needed = `the verb "write" on "` + writeResource + `"`
)

// inForce waits until the API server enforces the policies of the base.
func inForce(t *testing.T, c *cluster) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	require.NoError(t, c.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), node))) })
	probe, processor := editor(t, c), accountOf(t, c, "processor")
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		for _, obj := range []client.Object{aTransaction("probe"), aRecord("probe"), retentionLease()} {
			// The permissions of the probing user may not be in force yet.
			assert.ErrorContains(ct, probe.Create(t.Context(), obj, client.DryRunAll), needed)
		}
		assert.ErrorContains(ct, processor.Patch(t.Context(), node, merge(`{"metadata":{"finalizers":["example.com/mine"]}}`), client.DryRunAll),
			"may change no finalizer")
	}, patience, period, "the policies are in force")
	require.NoError(t, c.Delete(t.Context(), node))
}

// person returns a client of a user with the permissions of built-in roles in the whole cluster.
// The controller that aggregates these roles does not run here, so they are bound to their parts.
func person(t *testing.T, c *cluster, name string, roles ...string) client.Client {
	t.Helper()
	for _, role := range roles {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test:" + name + ":" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-" + role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), binding)))
	}
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: metadata, Verb: "deletecollection", Resource: "configmaps"},
		}}
		require.NoError(ct, c.Create(t.Context(), review))
		assert.True(ct, review.Status.Allowed)
	}, patience, period, "the API server knows the rights of %s", name)
	return actingAs(t, c, name)
}

func editor(t *testing.T, c *cluster) client.Client {
	t.Helper()
	return person(t, c, "a-cluster-editor", "view", "edit")
}

func admin(t *testing.T, c *cluster) client.Client {
	t.Helper()
	return person(t, c, "a-cluster-admin", "view", "edit", "admin")
}

// actingAs returns a client that impersonates a user.
func actingAs(t *testing.T, c *cluster, name string, groups ...string) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(c.plane.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return clientOf(t, cfg)
}

// accountOf returns a client with a token of a service account of the manifests.
func accountOf(t *testing.T, c *cluster, account string) client.Client {
	t.Helper()
	cfg := rest.AnonymousClientConfig(c.plane.Config)
	cfg.BearerToken = manifests.Token(t, c, systemNamespace, account)
	return clientOf(t, cfg)
}

func clientOf(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return c
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// aTransaction returns a forged transaction.
func aTransaction(node string) *corev1.ConfigMap {
	return txn.Transaction{
		Type: txn.Deleted, Node: node, UID: "forged", Revision: revision.MustParse("7"), Labels: map[string]string{"rack": "r7"},
	}.ConfigMap(transactions)
}

func aRecord(node string) *corev1.ConfigMap {
	return record.Record{Node: node, Revision: revision.MustParse("7"), Labels: map[string]string{"rack": "r7"}}.ConfigMap(metadata)
}

func aFloor(node string) *corev1.ConfigMap {
	return record.Record{Node: node, Revision: revision.MustParse("7"), Floor: true}.ConfigMap(metadata)
}

func retentionLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metadata, Name: retention.LeaseName}}
}

func TestTheVerbWriteIsNeeded(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	for _, obj := range render(t, "users") {
		require.NoError(t, apply(t, c, obj))
	}
	waiting := aTransaction("waiting-" + rand.String(5))
	require.NoError(t, c.Create(t.Context(), waiting))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), waiting)) })
	processor, people := accountOf(t, c, "processor"), actingAs(t, c, "somebody", "nodekeeper:editors")
	watcher := accountOf(t, c, "watcher")
	for name, write := range map[string]func() error{
		transactions + "/nodekeeper-watcher":   func() error { return watcher.Create(t.Context(), aTransaction("a"), client.DryRunAll) },
		transactions + "/nodekeeper-processor": func() error { return processor.Delete(t.Context(), waiting, client.DryRunAll) },
		metadata + "/nodekeeper-processor":     func() error { return processor.Create(t.Context(), aRecord("a"), client.DryRunAll) },
		transactions + "/nodekeeper-editor":    func() error { return people.Create(t.Context(), aTransaction("a"), client.DryRunAll) },
		metadata + "/nodekeeper-editor":        func() error { return people.Create(t.Context(), aRecord("a"), client.DryRunAll) },
	} {
		t.Run(name, func(t *testing.T) {
			allowed := func(ct *assert.CollectT) { assert.NoError(ct, write()) }
			require.EventuallyWithT(t, allowed, patience, period)
			role, key := &rbacv1.Role{}, strings.Split(name, "/")
			require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: key[0], Name: key[1]}, role))
			without, last := role.DeepCopy(), len(role.Rules)-1
			require.Equal(t, []string{"write"}, role.Rules[last].Verbs)
			without.Rules = without.Rules[:last]
			require.NoError(t, c.Update(t.Context(), without))
			require.EventuallyWithT(t, func(ct *assert.CollectT) { assert.ErrorContains(ct, write(), needed) }, patience, period)
			without.Rules = role.Rules
			require.NoError(t, c.Update(t.Context(), without))
			require.EventuallyWithT(t, allowed, patience, period)
		})
	}
}

func TestEditAndAdminDoNotHaveTheVerbWrite(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{base, "users"} {
		for _, obj := range render(t, dir) {
			for label := range obj.GetLabels() {
				assert.NotContains(t, label, "aggregate-to", "%s %s", obj.GetKind(), obj.GetName())
			}
		}
	}
}

// The rest of an overlay does not change.
func TestPoliciesCanBeLeftOut(t *testing.T) {
	t.Parallel()
	temporary, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	deploy, err := filepath.Rel(temporary, here)
	require.NoError(t, err)
	overlay := "resources: [" + filepath.Join(deploy, base) + "]\ncomponents: [" + filepath.Join(deploy, "components", "no-admission-policies") + "]\n"
	require.NoError(t, os.WriteFile(filepath.Join(temporary, "kustomization.yaml"), []byte(overlay), 0o600))
	var want []string
	for _, obj := range render(t, base) {
		if obj.GetKind() != policyKind && obj.GetKind() != bindingKind {
			want = append(want, obj.GetKind()+" "+obj.GetNamespace()+"/"+obj.GetName())
		}
	}
	var got []string
	for _, obj := range renderAt(t, temporary) {
		got = append(got, obj.GetKind()+" "+obj.GetNamespace()+"/"+obj.GetName())
	}
	assert.Equal(t, want, got)
	assert.Len(t, render(t, base), len(want)+6, "three policies and their bindings")
}

// refused checks that a policy refused a request with the expected message.
func refused(t assert.TestingT, err error, why string, what ...any) {
	assert.True(t, apierrors.IsForbidden(err), what...)
	assert.ErrorContains(t, err, why, what...)
}
