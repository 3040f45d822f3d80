package program

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gomodules.xyz/jsonpatch/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
)

// agreement compares the decisions of the policies with those of the webhook.
type agreement struct {
	*cluster

	ring    *v1alpha1.ClusterRing
	decider *policy.Decider
	cases   int
}

// caller is the user of a request.
type caller struct{ user, pod string }

// TestWebhookDecidesLikeThePolicies covers R21: for the same requests, the expressions in the API
// server and the functions of the webhook change the same labels and annotations.
func TestWebhookDecidesLikeThePolicies(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.needPolicies()
	only := c.sharder("a")
	core := func(name string) v1alpha1.GroupResource { return v1alpha1.GroupResource{Resource: name} }
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts = []string{"operator"}
	ring.Spec.Resources = []v1alpha1.Resource{
		{GroupResource: core("secrets"), ControlledResources: []v1alpha1.GroupResource{core("configmaps")}},
		{GroupResource: core("serviceaccounts"), Key: v1alpha1.KeyLabel, KeyLabel: "team", ControlledResources: []v1alpha1.GroupResource{core("configmaps")}},
		{GroupResource: core("resourcequotas"), Key: v1alpha1.KeyNamespace},
		{GroupResource: v1alpha1.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}, ControlledResources: []v1alpha1.GroupResource{core("configmaps")}},
	}
	c.admitting(ring, "web-0", "web-1", "web-2")
	require.NoError(t, only.Stop(stopTimeout), "policies alone")
	b := &policy.Builder{Prefix: prefix, Namespace: sharderNamespace}
	a := &agreement{cluster: c, ring: ring, decider: b.Decider(ring, []policy.Resource{
		{GroupResource: core("secrets"), Kind: "Secret"},
		{GroupResource: core("serviceaccounts"), Kind: "ServiceAccount"},
		{GroupResource: core("resourcequotas"), Kind: "ResourceQuota", Status: true},
		{GroupResource: core("configmaps"), Kind: "ConfigMap"},
		{GroupResource: ring.Spec.Resources[3].GroupResource, Kind: "ClusterRole", ClusterScoped: true},
	})}
	callers := []caller{{"admin", ""}, {c.account("operator"), "web-1"}, {c.account("operator"), "web-9"}, {c.account("operator"), ""}, {c.account("other"), "web-1"}}
	for _, by := range callers {
		a.creates(by)
		a.updates(by, by.user == c.account("operator"))
	}
	t.Logf("%d decisions agree", a.cases)
}

// metadata returns metadata with a name and labels.
func (a *agreement) metadata(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: a.namespace, Name: name, Labels: maps.Clone(labels)}
}

// owners are controller references of children, and others.
func owners() (all []metav1.OwnerReference) {
	for _, of := range [][2]string{
		{"v1", "Secret"},
		{"v1", "ServiceAccount"},
		{"rbac.authorization.k8s.io/v1", "ClusterRole"},
		{"rbac.authorization.k8s.io/v9", "ClusterRole"},
		{"v1", "ConfigMap"},
		{"v1", "ResourceQuota"},
		{"example.com/v1", "Secret"},
	} {
		for i := range 3 {
			all = append(all, metav1.OwnerReference{APIVersion: of[0], Kind: of[1], Name: fmt.Sprintf("owner-%d", i), UID: "1", Controller: new(i < 2)})
		}
	}
	return append(all, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: strings.Repeat("n", 1000), UID: "1", Controller: new(true)})
}

// labels returns the sharding labels with the given values; "" stands for none.
func (a *agreement) labels(shard, drain string, more ...string) map[string]string {
	all := map[string]string{}
	for label, value := range map[string]string{prefix.ShardLabel(a.ring.Name): shard, prefix.DrainLabel(a.ring.Name): drain} {
		if value != "" {
			all[label] = value
		}
	}
	for _, team := range more {
		all["team"] = team
	}
	return all
}

func (a *agreement) creates(by caller) {
	copied := a.labels("web-7", "web-8")
	generated := &corev1.Secret{ObjectMeta: a.metadata("", copied)}
	generated.GenerateName = "generated-"
	objects := []client.Object{
		generated, &corev1.Secret{ObjectMeta: a.metadata(strings.Repeat("n", 253), nil)}, &corev1.ConfigMap{ObjectMeta: a.metadata("foreign", copied)},
		&corev1.ServiceAccount{ObjectMeta: a.metadata("team", a.labels("", "", "blue"))}, &corev1.ServiceAccount{ObjectMeta: a.metadata("empty", a.labels("", "", ""))},
	}
	for i := range 4 {
		name := fmt.Sprintf("o-%d", i)
		objects = append(objects, &corev1.Secret{ObjectMeta: a.metadata(name, copied)}, &corev1.ServiceAccount{ObjectMeta: a.metadata(name, nil)},
			&corev1.ResourceQuota{ObjectMeta: a.metadata(name, nil)}, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.namespace + name}})
	}
	for i, owner := range owners() {
		for _, labels := range []map[string]string{nil, copied, a.labels("", "", "blue")} {
			o := &corev1.ConfigMap{ObjectMeta: a.metadata(fmt.Sprintf("c-%d", i), labels)}
			o.OwnerReferences = []metav1.OwnerReference{owner}
			objects = append(objects, o)
		}
	}
	for _, o := range objects {
		o.SetAnnotations(map[string]string{prefix.ChildrenAnnotation(a.ring.Name): "{}", "kept": "yes"})
		r := a.request(o, by)
		want := patched(r.Object, a.decider.Assign(r))
		require.NoError(a.t, a.as(by.user, by.pod).Create(a.t.Context(), o, client.DryRunAll))
		a.equal(want, o, by)
	}
}

func (a *agreement) updates(by caller, byShard bool) {
	owner := owners()[0]
	kinds := map[string]func(metav1.ObjectMeta) client.Object{
		"main":   func(m metav1.ObjectMeta) client.Object { return &corev1.Secret{ObjectMeta: m} },
		"simple": func(m metav1.ObjectMeta) client.Object { return &corev1.ResourceQuota{ObjectMeta: m} },
		"child": func(m metav1.ObjectMeta) client.Object {
			m.OwnerReferences = []metav1.OwnerReference{owner}
			return &corev1.ConfigMap{ObjectMeta: m}
		},
		"foreign": func(m metav1.ObjectMeta) client.Object { return &corev1.ConfigMap{ObjectMeta: m} },
	}
	for kind, object := range kinds {
		for _, before := range []map[string]string{nil, a.labels("web-0", ""), a.labels("web-0", "web-1"), a.labels("", "web-1")} {
			stored := object(metav1.ObjectMeta{Namespace: a.namespace, GenerateName: kind + "-"})
			require.NoError(a.t, a.asSharder().Create(a.t.Context(), stored))
			stored.SetLabels(maps.Clone(before))
			require.NoError(a.t, a.asSharder().Update(a.t.Context(), stored))
			for _, after := range []map[string]string{nil, a.labels("", "web-1"), a.labels("", "web-2"), a.labels("", "", "blue")} {
				o := stored.DeepCopyObject().(client.Object)
				o.SetLabels(maps.Clone(after))
				r := a.request(o, by)
				r.Old = &metav1.ObjectMeta{Labels: before}
				want := patched(r.Object, a.decider.Stick(r, byShard))
				require.NoError(a.t, a.as(by.user, by.pod).Update(a.t.Context(), o, client.DryRunAll))
				a.equal(want, o, by)
			}
		}
	}
}

// request returns the request of a caller with an object.
func (a *agreement) request(o client.Object, by caller) *policy.Request {
	a.t.Helper()
	kind, err := apiutil.GVKForObject(o, a.Scheme())
	require.NoError(a.t, err)
	r := &policy.Request{
		Resource: v1alpha1.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}, Kind: kind.GroupKind(),
		Object: &metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), Labels: maps.Clone(o.GetLabels()), Annotations: maps.Clone(o.GetAnnotations()), OwnerReferences: o.GetOwnerReferences(),
		},
		User: authenticationv1.UserInfo{Username: by.user},
	}
	if by.pod != "" {
		r.User.Extra = map[string]authenticationv1.ExtraValue{podName: {by.pod}}
	}
	return r
}

// patched returns metadata after a patch of labels and annotations.
func patched(m *metav1.ObjectMeta, patch []jsonpatch.Operation) *metav1.ObjectMeta {
	after := m.DeepCopy()
	for _, op := range patch {
		path := strings.SplitN(strings.TrimPrefix(op.Path, "/metadata/"), "/", 2)
		if len(path) == 1 {
			after.Labels = map[string]string{}
			continue
		}
		values := map[string]map[string]string{"labels": after.Labels, "annotations": after.Annotations}[path[0]]
		key := strings.ReplaceAll(path[1], "~1", "/")
		if op.Operation == "remove" {
			delete(values, key)
		} else {
			values[key], _ = op.Value.(string)
		}
	}
	return after
}

// equal checks the labels and annotations of an object.
func (a *agreement) equal(want *metav1.ObjectMeta, o client.Object, by caller) {
	a.t.Helper()
	a.cases++
	what := fmt.Sprintf("%T %s of %v, by %v", o, o.GetName(), o.GetOwnerReferences(), by)
	assert.Len(a.t, o.GetLabels(), len(want.Labels), what)
	for label, value := range want.Labels {
		assert.Equal(a.t, value, o.GetLabels()[label], "%s: %s", label, what)
	}
	assert.Len(a.t, o.GetAnnotations(), len(want.Annotations), what)
}
