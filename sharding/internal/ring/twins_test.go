package ring_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
)

// TestOlderOfTwoLeasesOfANameCounts covers R46: the older Lease is accepted as long as its shard
// holds it, or if no shard holds the other one.
func TestOlderOfTwoLeasesOfANameCounts(t *testing.T) {
	t.Parallel()
	in := func(namespace string, created int, state shardlease.State) shardlease.Seen {
		s := seen("web-0", created, state, nil)
		s.Lease.Namespace, s.Lease.Spec.HolderIdentity = namespace, new("web-0")
		if !state.Member() {
			s.Lease.Spec.HolderIdentity = new("shardlease-controller")
		}
		return s
	}
	for name, tc := range map[string]struct {
		all  []shardlease.Seen
		want string
		// rejected is set if the other Lease is also held by a shard, and therefore reported.
		rejected bool
	}{
		"both live":                  {[]shardlease.Seen{in("a", 2, shardlease.Ready), in("b", 1, shardlease.Ready)}, "b", true},
		"the older one is silent":    {[]shardlease.Seen{in("a", 1, shardlease.Uncertain), in("b", 2, shardlease.Ready)}, "a", true},
		"the older one is dead":      {[]shardlease.Seen{in("a", 1, shardlease.Dead), in("b", 2, shardlease.Expired)}, "b", false},
		"the younger one is dead":    {[]shardlease.Seen{in("a", 1, shardlease.Ready), in("b", 2, shardlease.Orphaned)}, "a", false},
		"both are dead":              {[]shardlease.Seen{in("a", 2, shardlease.Dead), in("b", 1, shardlease.Dead)}, "b", false},
		"created in the same second": {[]shardlease.Seen{in("b", 1, shardlease.Ready), in("a", 1, shardlease.Ready)}, "a", true},
		"no other has the name":      {[]shardlease.Seen{in("a", 1, shardlease.Ready), seen("web-1", 0, shardlease.Ready, nil)}, "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted, twins := ring.Distinct(tc.all)
			require.Len(t, tc.all, len(counted)+len(twins))
			assert.Equal(t, tc.want, counted[0].Lease.Namespace)
			shards, rejected := ring.Shards(ring.Observation{Leases: counted, Twins: twins}, v1alpha1.TimeberttPrefix, nil)
			assert.Len(t, shards, len(counted))
			assert.Equal(t, tc.rejected, len(rejected) > 0)
		})
	}
}

// The Lease of a dead twin is deleted like the Leases of other dead shards. A Lease that a shard
// holds is kept.
func TestWhatIsLeftOfATwinGoes(t *testing.T) {
	t.Parallel()
	left, held := seen("web-0", 0, shardlease.Orphaned, nil), seen("web-1", 0, shardlease.Ready, nil)
	for _, s := range []shardlease.Seen{left, held} {
		s.Lease.Namespace, s.Lease.UID, s.Lease.ResourceVersion = "web", types.UID(s.Lease.Name), "1"
	}
	clients := fake.NewClientset(left.Lease, held.Lease)
	c := &ring.Controller{Observer: &ring.Observer{Leases: clients.CoordinationV1(), Dialect: ring.Dialect{Compat: true}}}
	of := &v1alpha1.ClusterRing{Spec: v1alpha1.ClusterRingSpec{Shards: v1alpha1.Shards{Namespace: v1alpha1.AnyNamespace}}}
	ring.Tidy(c, t.Context(), of, nil, []shardlease.Seen{left, held})
	all, err := clients.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, 1)
	assert.Equal(t, "web-1", all.Items[0].Name)
}
