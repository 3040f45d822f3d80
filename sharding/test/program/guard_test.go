package program

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	sharderring "nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/test/manifests"
)

// asAccount gives sharders that start from now on a service account with all rights, and returns a
// client with another token of that account.
func (c *cluster) asAccount() (stolen client.Client) {
	c.t.Helper()
	c.stores(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "sharder"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "sharder-" + c.namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.namespace, Name: "sharder"}},
		},
	)
	config := rest.AnonymousClientConfig(c.config())
	config.BearerToken, config.QPS = manifests.Token(c.t, c.Client, c.namespace, "sharder"), -1
	stolen, err := client.New(config, client.Options{})
	require.NoError(c.t, err)
	require.EventuallyWithT(c.t, func(t *assert.CollectT) { // the API server has observed the rights
		require.NoError(t, stolen.List(c.t.Context(), &corev1.NodeList{}))
	}, patience, period)
	c.kubeconfig = manifests.Kubeconfig(c.t, c.Client, c.plane, c.namespace, "sharder")
	return stolen
}

// guarded returns a site with a ring with fence Deny, on which no sharder acts. Its Secrets have
// children. With byWebhook set, a webhook makes the decisions of the mutating policies.
func guarded(t *testing.T, byWebhook bool) (c *cluster, ring *v1alpha1.ClusterRing, sharder client.Client) {
	t.Helper()
	c = newSite(t)
	if byWebhook {
		c.useWebhook()
	}
	c.permit()
	sharder = c.asAccount()
	only := c.sharder("a")
	ring = c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{account}, v1alpha1.FenceDeny
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Group: "apps", Resource: "deployments"}})
	c.admitting(ring, "table")
	c.hasFence(ring, metav1.ConditionTrue, "Installed")
	c.admissionAlone(only)
	return c, ring, client.WithFieldOwner(sharder, sharderring.FieldManager)
}

// TestGuardOfLabels covers R35: only the sharder, and a shard that releases an object, change the
// sharding metadata of the object. All other requests of anyone succeed, also if they omit it.
func TestGuardOfLabels(t *testing.T) {
	t.Parallel()
	c, ring, sharder := guarded(t, false)
	s, d, children := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name), prefix.ChildrenAnnotation(ring.Name)
	owner, person := c.stolen("web-0"), c.as("person", "")
	type labels = map[string]string
	held, draining, none := labels{s: "web-0"}, labels{s: "web-0", d: "web-1"}, labels{}
	const refused = "only the sharder, and a shard that releases the object"
	for name, tc := range map[string]struct {
		caller client.Client
		before labels
		patch  string
		want   labels // unless it is refused
		err    string
	}{
		"the sharder drains":                       {sharder, held, labelPatch(labels{d: "web-1"}), draining, ""},
		"the sharder moves":                        {sharder, held, labelPatch(labels{s: "web-1"}), labels{s: "web-1"}, ""},
		"the sharder parks":                        {sharder, held, labelPatch(labels{s: "", d: "web-1"}), labels{d: "web-1"}, ""},
		"the sharder cleans up":                    {sharder, draining, labelPatch(labels{s: "", d: ""}), none, ""},
		"the sharder sets the annotation":          {sharder, held, annotationPatch(children, "{}"), held, ""},
		"the sharder serves another ring":          {sharder, held, labelPatch(labels{prefix.ShardLabel("other"): "x"}), held, ""},
		"its shard parks":                          {owner, draining, labelPatch(labels{s: ""}), labels{d: "web-1"}, ""},
		"its shard releases, protocol 1":           {owner, draining, labelPatch(labels{s: "", d: ""}), labels{s: "web-1"}, ""},
		"its shard completes the hand-over":        {owner, draining, labelPatch(labels{s: "web-1", d: ""}), labels{s: "web-1"}, ""},
		"its shard works":                          {owner, held, annotationPatch("a", "b"), held, ""},
		"its shard drops its label":                {owner, held, labelPatch(labels{s: ""}), held, ""},
		"its shard gives the object away":          {owner, held, labelPatch(labels{s: "web-1"}), nil, refused},
		"its shard chooses another target":         {owner, draining, labelPatch(labels{s: "web-2", d: ""}), nil, refused},
		"its shard refuses to release":             {owner, draining, labelPatch(labels{d: ""}), nil, refused},
		"its shard sets the annotation":            {owner, held, annotationPatch(children, "{}"), nil, refused},
		"a person edits":                           {person, draining, annotationPatch("a", "b"), draining, ""},
		"a person drops the labels":                {person, draining, labelPatch(labels{s: "", d: ""}), draining, ""},
		"a person drops the labels, not draining":  {person, held, labelPatch(labels{s: ""}), held, ""},
		"a person edits an unassigned object":      {person, none, annotationPatch("a", "b"), labels{s: "table"}, ""},
		"a person assigns":                         {person, held, labelPatch(labels{s: "web-1"}), nil, refused},
		"a person stops a drain":                   {person, draining, labelPatch(labels{d: ""}), nil, refused},
		"a person drains":                          {person, held, labelPatch(labels{d: "web-1"}), nil, refused},
		"a person completes a hand-over":           {person, draining, labelPatch(labels{s: "web-1", d: ""}), nil, refused},
		"a person assigns a parked object":         {person, labels{d: "web-1"}, labelPatch(labels{s: "web-1", d: ""}), nil, refused},
		"a person sets the annotation":             {person, held, annotationPatch(children, "{}"), nil, refused},
		"the garbage collector removes finalizers": {c.as("system:serviceaccount:kube-system:generic-garbage-collector", ""), draining, `{"metadata":{"finalizers":null,"ownerReferences":null}}`, draining, ""},
	} {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "s-"}, StringData: labels{"a": "b"}}
		require.NoError(t, c.Create(t.Context(), object))
		require.NoError(t, sharder.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(labelPatch(tc.before)))), name)
		err := tc.caller.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(tc.patch)))
		if tc.err != "" {
			require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
			require.ErrorContains(t, err, tc.err, name)
			continue
		}
		require.NoError(t, err, name)
		got := maps.Clone(object.Labels)
		maps.DeleteFunc(got, func(label, _ string) bool { return label != s && label != d })
		if len(tc.want) == 0 {
			require.Empty(t, got, name)
			continue
		}
		require.Equal(t, tc.want, got, name)
	}
}

// labelPatch returns a merge patch that sets labels, or removes those without a value.
func labelPatch(labels map[string]string) string { return metadataPatch("labels", labels) }

func annotationPatch(key, value string) string {
	return metadataPatch("annotations", map[string]string{key: value})
}

func metadataPatch(field string, values map[string]string) string {
	to := map[string]any{}
	for key, value := range values {
		to[key] = value
		if value == "" {
			to[key] = nil
		}
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{field: to}})
	if err != nil {
		panic(err) // unreachable: these are strings
	}
	return string(text)
}

// TestGuardAllowsReplacing covers R35 for commands such as kubectl replace: an object without its
// labels and annotations replaces one that has them, and keeps its labels. A child that has left the
// ring is not guarded.
func TestGuardAllowsReplacing(t *testing.T) {
	t.Parallel()
	for name, byWebhook := range map[string]bool{"policies": false, "webhook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowsReplacing(t, byWebhook)
		})
	}
}

func allowsReplacing(t *testing.T, byWebhook bool) {
	t.Helper()
	c, ring, sharder := guarded(t, byWebhook)
	s, d, children := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name), prefix.ChildrenAnnotation(ring.Name)
	object := secret(c.namespace, "replaced")
	c.stores(object)
	require.NoError(t, sharder.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(labelPatch(map[string]string{s: "web-0", d: "web-1"})))))
	require.NoError(t, sharder.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(annotationPatch(children, "{}")))))
	replaced := secret(c.namespace, "replaced")
	replaced.StringData = map[string]string{"new": "data"}
	require.NoError(t, c.as("person", "").Update(t.Context(), replaced))
	assert.Equal(t, map[string]string{s: "web-0", d: "web-1"}, replaced.Labels)
	assert.Equal(t, "data", string(replaced.Data["new"]))

	status := deployment(c.namespace, "status")
	c.stores(status)
	require.Equal(t, "table", status.Labels[s])
	status.Labels, status.ResourceVersion, status.Status.ObservedGeneration = nil, "", 1
	require.NoError(t, c.as("person", "").Status().Update(t.Context(), status))
	assert.Equal(t, "table", status.Labels[s])

	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "stray", Labels: map[string]string{s: "web-0"}}}
	c.stores(stray)
	require.NoError(t, sharder.Patch(t.Context(), stray, client.RawPatch(types.MergePatchType, []byte(labelPatch(map[string]string{s: "web-0"})))))
	require.NoError(t, c.as("person", "").Patch(t.Context(), stray, client.RawPatch(types.MergePatchType, []byte(labelPatch(map[string]string{s: ""})))))
	assert.Empty(t, stray.Labels)
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "child", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Secret", Name: object.Name, UID: object.UID, Controller: new(true),
	}}}}
	c.stores(child)
	require.NotEmpty(t, child.Labels[s])
	err := c.as("person", "").Patch(t.Context(), child, client.RawPatch(types.MergePatchType, []byte(labelPatch(map[string]string{s: "web-7"}))))
	require.True(t, apierrors.IsForbidden(err), err)
}

// TestGuardDuringAnOutage covers R35: while no webhook answers, a client that replaces an object
// removes its labels, and a shard of protocol 1 releases an object without assigning it.
func TestGuardDuringAnOutage(t *testing.T) {
	t.Parallel()
	c, ring, sharder := guarded(t, true)
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	owner, person := c.stolen("web-0"), c.as("person", "")
	require.NoError(t, c.Delete(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sharding-" + ring.Name}}))
	draining := []byte(labelPatch(map[string]string{s: "web-0", d: "web-1"}))
	drops := client.RawPatch(types.MergePatchType, []byte(labelPatch(map[string]string{s: "", d: ""})))
	for name, update := range map[string]func(*corev1.Secret) error{
		"replaced": func(o *corev1.Secret) error { return person.Update(t.Context(), o) },
		"released": func(o *corev1.Secret) error { return owner.Patch(t.Context(), o, drops) },
	} {
		object := secret(c.namespace, name)
		c.stores(object)
		require.EventuallyWithT(t, func(collect *assert.CollectT) { // the API server has forgotten the webhook
			require.NoError(collect, sharder.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, draining)))
			after := secret(c.namespace, name)
			require.NoError(collect, update(after))
			assert.NotContains(collect, after.Labels, s)
			assert.NotContains(collect, after.Labels, d)
		}, patience, period, name)
		require.NoError(t, sharder.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, draining)))
		err := person.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(labelPatch(map[string]string{s: ""}))))
		require.True(t, apierrors.IsForbidden(err), "the object would look as if its shard had released it: %v", err)
	}
}

// TestStolenTokenOfTheSharder covers R35: with the account of the sharder, nothing but the metadata
// of rings can be changed on an object of a ring.
func TestStolenTokenOfTheSharder(t *testing.T) {
	t.Parallel()
	c, ring, sharder := guarded(t, false)
	s := prefix.ShardLabel(ring.Name)
	object := deployment(c.namespace, "victim")
	object.Finalizers = []string{"example.com/kept"}
	c.stores(object)
	t.Cleanup(func() {
		assert.NoError(t, c.Patch(context.WithoutCancel(t.Context()), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	})
	for name, patch := range map[string]string{
		"a field of the spec":    `{"spec":{"paused":true}}`,
		"a field and the label":  fmt.Sprintf(`{"metadata":{"labels":{%q:"web-1"}},"spec":{"replicas":0}}`, s),
		"a new field":            `{"spec":{"minReadySeconds":3}}`,
		"the finalizers":         `{"metadata":{"finalizers":null}}`,
		"the owners":             `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"a","uid":"b"}]}}`,
		"another label":          `{"metadata":{"labels":{"app":"victim"}}}`,
		"another annotation":     `{"metadata":{"annotations":{"a":"b"}}}`,
		"a label with a similar": `{"metadata":{"labels":{"shardx.sharding.nodekeeper.dev/a":"b"}}}`,
	} {
		for _, manager := range []string{"sharder", "thief"} {
			err := sharder.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(manager))
			require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
			require.ErrorContains(t, err, "the account of the sharder may change only", name)
		}
	}
	status := object.DeepCopy()
	status.Status.ObservedGeneration = 7
	require.True(t, apierrors.IsForbidden(sharder.Status().Update(t.Context(), status)))
	now := &appsv1.Deployment{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), now))
	assert.Equal(t, object.ResourceVersion, now.ResourceVersion)
}
