package poolconfig_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/controller"
	"nodekeeper.dev/placement/internal/poolconfig"
	"nodekeeper.dev/placement/schedule"
)

const whole = `
pools:
- {name: worker, namespace: shop, statefulSet: pods, capacity: 50, strategy: Pack, handover: Exclusive, patience: 1m, tolerance: 2, rebalance: 3, maxReplicas: 100,
   kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, maxPath: spec.most, weightPath: "", payloadPath: spec, statusPath: status.placement}]}
`

func TestParseReadsEveryKey(t *testing.T) {
	t.Parallel()
	pools, err := poolconfig.Parse([]byte(whole))
	require.NoError(t, err)
	assert.Equal(t, []controller.Pool{{
		Name: "worker", Namespace: "shop", Capacity: 50, Strategy: schedule.Pack, Tolerance: 2, Rebalance: 3, MaxReplicas: 100,
		StatefulSet: "pods", Patience: time.Minute, KeepEnded: controller.DefaultKeepEnded,
		Kinds: []controller.Kind{{
			GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Queue"},
			ReplicasPath:     []string{"spec", "partitions"}, MaxPath: []string{"spec", "most"}, PayloadPath: []string{"spec"}, StatusPath: []string{"status", "placement"},
		}},
	}}, pools)
}

func TestParseHasDefaults(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../examples/queue/pools.yaml")
	require.NoError(t, err)
	pools, err := poolconfig.Parse(content)
	require.NoError(t, err)
	require.Len(t, pools, 1)
	p := pools[0]
	assert.Zero(t, p.Capacity)
	assert.Equal(t, schedule.Spread, p.Strategy)
	assert.Equal(t, []int32{1, poolconfig.DefaultRebalance, placement.MaxReplicas}, []int32{p.Tolerance, p.Rebalance, p.MaxReplicas})
	assert.Equal(t, []string{"status"}, p.Kinds[0].StatusPath)
}

// TestPatienceNeedsAStatefulSet: no other pod returns under its name.
func TestPatienceNeedsAStatefulSet(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]time.Duration{"capacity: 1": 0, "statefulSet: w": controller.DefaultPatience, "statefulSet: w, patience: 7s": 7 * time.Second} {
		pools, err := poolconfig.Parse([]byte("pools: [{name: w, namespace: shop, " + keys + ", kinds: [{apiVersion: v1, kind: Q, replicasPath: a}]}]"))
		require.NoError(t, err)
		assert.Equal(t, want, pools[0].Patience, keys)
	}
}

// TestParseNamesThePathOfAProblem: each replacement breaks the file above.
func TestParseNamesThePathOfAProblem(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ before, after, want string }{
		{"pools:", "pool:", "pool: unknown key"},
		{"capacity: 50", "capcity: 50", "pools[0].capcity: unknown key"},
		{"kind: Queue", "kind: Queue, spec: x", "pools[0].kinds[0].spec: unknown key"},
		{"capacity: 50", "capacity: many", "pools[0].capacity: it must be a whole number"},
		{"capacity: 50", "capacity: 1.5", "pools[0].capacity: it must be a whole number"},
		{"capacity: 50", "capacity: -1", "pools[0].capacity: it must be a whole number"},
		{"capacity: 50", "capacity: 1, capacity: 2", `already set`},
		{"maxReplicas: 100", "maxReplicas: 0", "pools[0].maxReplicas: 0 is not a number from 1"},
		{"strategy: Pack", "strategy: pack", `pools[0].strategy: "pack" is not supported: choose from Spread, Pack`},
		{"handover: Exclusive", "handover: Both", `pools[0].handover: "Both" is not supported: choose from Exclusive, Overlap`},
		{"patience: 1m", "patience: soon", `pools[0].patience: "soon" is not a duration, for example 30s`},
		{"patience: 1m", "patience: -1s", `pools[0].patience: "-1s" is not a duration`},
		{"statefulSet: pods, ", "", "pools[0].patience: only the pods of a statefulSet return under their names"},
		{"statefulSet: pods", "statefulSet: A", "pools[0].statefulSet: "},
		{"name: worker,", "", "pools[0].name: it is required"},
		{"namespace: shop", "namespace: Shop", "pools[0].namespace: "},
		{"kind: Queue, ", "", "pools[0].kinds[0].kind: it is required"},
		{"replicasPath: spec.partitions, ", "", "pools[0].kinds[0].replicasPath: it is required, or annotationPrefix"},
		{"replicasPath: spec.partitions, ", "annotationPrefix: A, ", "pools[0].kinds[0].annotationPrefix: a lowercase RFC 1123 subdomain"},
		{"replicasPath: spec.partitions, ", "replicasPath: spec.n, annotationPrefix: a.b, ", "pools[0].kinds[0].replicasPath: with annotationPrefix, the annotation replicas has the desired number"},
		{"spec.partitions", "spec..partitions", "pools[0].kinds[0].replicasPath: it must be the path of a field"},
		{"status.placement", "spec", "pools[0].kinds[0].statusPath: it must begin with status"},
		{"example.com/v1", "a/b/c", "pools[0].kinds[0].apiVersion: "},
		{"kinds: [{", "kinds: [7, {", "pools[0].kinds[0]: it must be an object"},
		{"kinds: [{", "kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: a}, {", "pools[0].kinds[1].kind: pools[0].kinds[0] has the same kind"},
		{whole, "pools: []", "pools: at least one pool is required"},
		{whole, "[", "not valid YAML"},
		{whole, whole + "---\n" + whole, "2 YAML documents: put all pools into one"},
		{whole, "# pools\n---" + whole + "---\npools: []\n", "2 YAML documents"},
		{whole, "7", "it must be an object"},
		{whole, whole + whole[len("\npools:\n"):], "pools[1].name: pools[0] has the same name and namespace"},
	} {
		broken := strings.Replace(whole, tc.before, tc.after, 1)
		require.NotEqual(t, whole, broken)
		_, err := poolconfig.Parse([]byte(broken))
		require.ErrorContains(t, err, tc.want)
		assert.NotContains(t, err.Error(), "\n")
	}
}
