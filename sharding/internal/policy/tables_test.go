package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
	sharderring "nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/slots"
)

// withTable returns the ring with a table of one shard.
func withTable(generation int64, shard string) *v1alpha1.ClusterRing {
	r := ring()
	r.Status.Table = &v1alpha1.Table{Generation: generation, Shards: []string{shard}, Slots: slices.Repeat([]int32{0}, slots.Count)}
	return r
}

// A sharder that was frozen, or whose watch of rings is behind, does not replace a later table.
func TestLaterTableIsReplacedOnlyAfterALiveRead(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	for name, tc := range map[string]struct {
		live *v1alpha1.ClusterRing
		want string
	}{
		"the cache is behind":          {withTable(6, "later"), "later"},
		"another client has edited it": {withTable(5, "now"), "now"},
	} {
		later := policy.Table(withTable(6, "later"), "sharder-system")
		cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(withTable(5, "now"), later).Build()
		tables := &policy.Tables{
			Client: cached, Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.live).Build(), Reports: &sharderring.Reports{},
			Dialect: sharderring.Dialect{Prefix: v1alpha1.DefaultPrefix}, Namespace: "sharder-system", SyncPeriod: time.Minute,
		}
		_, err := tables.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "web"}})
		require.NoError(t, err, name)
		got := &corev1.ConfigMap{}
		require.NoError(t, cached.Get(t.Context(), client.ObjectKeyFromObject(later), got))
		assert.Equal(t, tc.want, got.Data["shards"], name)
	}
}
