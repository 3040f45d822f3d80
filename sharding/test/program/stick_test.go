package program

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
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
	require.NoError(t, only.Stop(stopTimeout), "policies alone")
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	callers := map[string]client.Client{"sharder": c, "shard": c.as(c.account("operator"), ""), "other": c.as("other", "")}
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
			require.NoError(t, c.Update(t.Context(), created), "by the sharder's user")
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

// TestAnyoneAcknowledgesIfTheAccountsOfTheShardsAreUnknown covers R20 for rings without service
// accounts, or with Leases in all namespaces.
func TestAnyoneAcknowledgesIfTheAccountsOfTheShardsAreUnknown(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	ring := c.admitting(c.ring(""), "web-0")
	require.NoError(t, only.Stop(stopTimeout), "policies alone")
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	o := secret(c.namespace, "draining")
	c.stores(o)
	o.Labels[s], o.Labels[d] = "web-0", "web-1"
	require.NoError(t, c.Update(t.Context(), o), "by the sharder's user")
	delete(o.Labels, s)
	require.NoError(t, c.as("anyone", "").Update(t.Context(), o))
	assert.Equal(t, "web-1", o.Labels[s])
	assert.NotContains(t, o.Labels, d)
}

// The labels of a Pod can also be changed through its status.
func TestLabelsStickWhenAStatusIsWritten(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	ring := c.ring("")
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "pods"}})
	c.admitting(ring, "web-0")
	require.NoError(t, only.Stop(stopTimeout), "policies alone")
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
