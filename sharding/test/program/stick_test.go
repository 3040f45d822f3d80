package program

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/programs"
)

// TestLabelsStick covers R20 and F20: a write without the labels does not change the assignment of
// an object.
func TestLabelsStick(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts = []string{"operator"}
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "serviceaccounts"}})
	c.admitting(ring, "table")
	c.admissionAlone(only)
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	sharder := c.asSharder()
	callers := map[string]client.Client{"sharder": sharder, "shard": c.as(c.account("operator"), ""), "other": c.as("other", "")}
	type labels = map[string]string
	for name, tc := range map[string]struct {
		kind, caller     string
		before, as, want labels
	}{
		"1: a shard acknowledges":                             {"Secret", "shard", labels{s: "a", d: "b"}, labels{d: "b"}, labels{d: "b"}},
		"1: the same, nothing is controlled":                  {"ServiceAccount", "shard", labels{s: "a", d: "b"}, labels{d: "b"}, labels{s: "b"}},
		"2: a shard of protocol 1 acknowledges":               {"Secret", "shard", labels{s: "a", d: "b"}, nil, labels{s: "b"}},
		"3: a shard drops an assignment that is not draining": {"Secret", "shard", labels{s: "a"}, nil, labels{s: "a"}},
		"3: a shard drops the target of a parked object":      {"Secret", "shard", labels{d: "b"}, nil, labels{d: "b"}},
		"3: another drops the assignment":                     {"Secret", "other", labels{s: "a"}, nil, labels{s: "a"}},
		"3: another drops the assignment in a drain":          {"Secret", "other", labels{s: "a", d: "b"}, labels{d: "b"}, labels{s: "a", d: "b"}},
		"3: another drops both":                               {"ServiceAccount", "other", labels{s: "a", d: "b"}, nil, labels{s: "a", d: "b"}},
		"4: there is no assignment":                           {"Secret", "other", nil, nil, labels{s: "table"}},
		"the sharder cleans up":                               {"Secret", "sharder", labels{s: "a", d: "b"}, nil, nil},
		"a foreign object":                                    {"ConfigMap", "other", labels{s: "a"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "sticky-"}}
			object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(tc.kind))
			created, err := c.metadataOnly(object)
			require.NoError(t, err)
			created.SetLabels(tc.before)
			require.NoError(t, sharder.Update(t.Context(), created))
			created.SetLabels(tc.as)
			require.NoError(t, callers[tc.caller].Update(t.Context(), created))
			got := created.GetLabels()
			for label := range got { // labels of other tests
				if label != s && label != d {
					delete(got, label)
				}
			}
			if len(tc.want) == 0 {
				assert.Empty(t, got)
				return
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// TestOnlyAShardAcknowledges covers R20 and F20 for rings without service accounts: a caller in a pod
// has the name of the shard. A caller without a pod may renew its Lease, and keeps the label drain,
// which no update that omits all labels does.
func TestOnlyAShardAcknowledges(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	ring := c.ring("")
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "serviceaccounts"}})
	c.admitting(ring, "web-0")
	c.admissionAlone(only)
	c.acknowledged(ring, "Secret", false)
	c.acknowledged(ring, "ServiceAccount", true)
}

// acknowledged checks whose writes count as acknowledgements of web-0 in a ring without accounts. With
// complete set, the policy completes each hand-over.
func (c *cluster) acknowledged(ring *v1alpha1.ClusterRing, kind string, complete bool) {
	c.t.Helper()
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	type labels = map[string]string
	moved, parked, kept := labels{s: "web-1"}, labels{d: "web-1"}, labels{s: "web-0", d: "web-1"}
	if complete {
		parked = moved
	}
	for name, tc := range map[string]struct {
		caller   client.Client
		as, want labels
	}{
		"a pod of that name":                         {c.as("shard", "web-0"), labels{d: "web-1"}, parked},
		"a pod of that name, protocol 1":             {c.as("shard", "web-0"), nil, moved},
		"another pod":                                {c.as("shard", "web-1"), labels{d: "web-1"}, kept},
		"another pod, without labels":                {c.as("shard", "web-1"), nil, kept},
		"a process that may renew the Lease":         {c.as("shard", ""), labels{d: "web-1"}, parked},
		"an administrator's update without labels":   {c.as("admin", ""), nil, kept},
		"the sharder's user, in an update without":   {c, nil, kept},
		"a user that may not renew it":               {c.limited(kind), labels{d: "web-1"}, kept},
		"a user that may not renew it, without both": {c.limited(kind), nil, kept},
	} {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "draining-"}}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		created, err := c.metadataOnly(object)
		require.NoError(c.t, err)
		created.SetLabels(kept)
		require.NoError(c.t, c.asSharder().Update(c.t.Context(), created))
		created.SetLabels(tc.as)
		require.NoError(c.t, tc.caller.Update(c.t.Context(), created))
		assert.Equal(c.t, tc.want, created.GetLabels(), name)
	}
}

// admissionAlone stops the only sharder. On an API server without policies, a replica that does not lead
// serves the webhooks meanwhile.
func (c *cluster) admissionAlone(only *programs.Program) {
	c.t.Helper()
	require.NoError(c.t, only.Stop(stopTimeout))
	if !c.byWebhook {
		return
	}
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: sharderNamespace, Name: "sharder"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(600)), AcquireTime: &now, RenewTime: &now},
	}
	require.NoError(c.t, c.Create(c.t.Context(), lease))
	c.t.Cleanup(func() { assert.NoError(c.t, c.Delete(context.WithoutCancel(c.t.Context()), lease)) })
	c.serve("standby", c.webhook)
}

// limited returns a client for a user that may only write objects of one kind in the namespace.
func (c *cluster) limited(kind string) client.Client {
	c.t.Helper()
	name := c.namespace + "-limited-" + strings.ToLower(kind)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{strings.ToLower(kind) + "s"}, Verbs: []string{"get", "update"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	for _, o := range []client.Object{role, binding} {
		require.NoError(c.t, client.IgnoreAlreadyExists(c.Create(c.t.Context(), o)))
	}
	c.t.Cleanup(func() {
		assert.NoError(c.t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), role)))
	})
	config := c.config()
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	other, err := client.New(config, client.Options{})
	require.NoError(c.t, err)
	return other
}

// The labels of a Pod can also be changed through its status.
func TestLabelsStickWhenAStatusIsWritten(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	ring := c.ring("")
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "pods"}})
	c.admitting(ring, "web-0")
	c.admissionAlone(only)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	c.stores(pod)
	require.Equal(t, "web-0", pod.Labels[prefix.ShardLabel(ring.Name)])
	pod.Labels = nil
	require.NoError(t, c.as("other", "").Status().Update(t.Context(), pod))
	assert.Equal(t, "web-0", pod.Labels[prefix.ShardLabel(ring.Name)])
}

// metadataOnly creates an object that contains only metadata.
func (c *cluster) metadataOnly(o *metav1.PartialObjectMetadata) (client.Object, error) {
	var object client.Object = &corev1.Secret{ObjectMeta: o.ObjectMeta}
	switch o.Kind {
	case "ConfigMap":
		object = &corev1.ConfigMap{ObjectMeta: o.ObjectMeta}
	case "ServiceAccount":
		object = &corev1.ServiceAccount{ObjectMeta: o.ObjectMeta}
	}
	return object, c.Create(c.t.Context(), object)
}
