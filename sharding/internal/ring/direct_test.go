package ring_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

// No object may be released without its children.
func TestShardsMayCompleteHandoversOfWhatHasNoChildren(t *testing.T) {
	t.Parallel()
	secrets, nodes, configMaps := v1alpha1.GroupResource{Resource: "secrets"}, v1alpha1.GroupResource{Resource: "nodes"}, v1alpha1.GroupResource{Resource: "configmaps"}
	main := func(r v1alpha1.GroupResource, controlled ...v1alpha1.GroupResource) v1alpha1.Resource {
		return v1alpha1.Resource{GroupResource: r, ControlledResources: controlled}
	}
	for name, tc := range map[string]struct {
		namespace string
		resources []v1alpha1.Resource
		labelled  []v1alpha1.GroupResource
		want      bool
	}{
		"nothing is controlled":                {"web", []v1alpha1.Resource{main(secrets), main(nodes)}, []v1alpha1.GroupResource{secrets}, true},
		"one controls another":                 {"web", []v1alpha1.Resource{main(secrets, configMaps), main(nodes)}, nil, false},
		"one did, and the labels are not gone": {"web", []v1alpha1.Resource{main(secrets)}, []v1alpha1.GroupResource{secrets, configMaps}, false},
		"shards of another project":            {v1alpha1.AnyNamespace, []v1alpha1.Resource{main(secrets)}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := &v1alpha1.ClusterRing{
				Spec:   v1alpha1.ClusterRingSpec{Shards: v1alpha1.Shards{Namespace: tc.namespace}, Resources: tc.resources},
				Status: v1alpha1.ClusterRingStatus{LabelledResources: tc.labelled},
			}
			dialect := ring.Dialect{Prefix: v1alpha1.DefaultPrefix, Compat: true}
			key := dialect.PrefixOf(of).HandoverLabel()
			l := seen("web-0", 0, shardlease.Ready, nil).Lease
			l.Namespace, l.Labels = "web", map[string]string{"app": "web"}
			if !tc.want {
				l.Labels[key] = v1alpha1.HandoverDirect // left by an earlier ring
			}
			clients := fake.NewClientset(l)
			c := &ring.Controller{Observer: &ring.Observer{Leases: clients.CoordinationV1(), Dialect: dialect}}
			ring.Tidy(c, t.Context(), of, []ring.Shard{{Name: "web-0", State: ring.Ready, Lease: l}}, nil)
			stored, err := clients.CoordinationV1().Leases("web").Get(t.Context(), "web-0", metav1.GetOptions{})
			require.NoError(t, err)
			want := map[string]string{"app": "web", dialect.PrefixOf(of).StateLabel(): "ready"}
			if tc.want {
				want[key] = v1alpha1.HandoverDirect
			}
			assert.Equal(t, want, stored.Labels)
		})
	}
}
