package helm_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/hack/helm"
	"nodekeeper.dev/test/programs"
)

// pool has every key of a pool and of a kind that uses no annotations.
const pool = `{name: worker, namespace: shop, statefulSet: worker, patience: 1m, capacity: 50, strategy: Pack, handover: Exclusive, tolerance: 2, rebalance: 3, maxReplicas: 1000000,
	kinds: [{apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, maxPath: spec.most, weightPath: "", payloadPath: spec, statusPath: status.placement}]}`

// fileOfPools returns the file of the pools in the ConfigMap of the chart with these values.
func fileOfPools(t *testing.T, given map[string]any) (content string, exists bool) {
	t.Helper()
	objects, _ := placement.render(t, given)
	for _, obj := range objects {
		if obj.GetKind() == "ConfigMap" && obj.GetName() == "placement-pools" {
			files, _ := obj.Object["data"].(map[string]any)
			content, _ = files["pools.yaml"].(string)
			return content, true
		}
	}
	return "", false
}

// controllerSays returns the error of a controller that starts with a file of pools. The controller
// always ends, because its kubeconfig file is missing.
func controllerSays(t *testing.T, content string) string {
	t.Helper()
	program, err := programs.Path("placement")
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "pools.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	says, err := exec.CommandContext(ctx, program, "controller", "--pool-config="+file, "--kubeconfig="+filepath.Join(dir, "missing")).CombinedOutput()
	require.Error(t, err)
	return string(says)
}

// TestPoolsOfTheValuesAreTheFileOfTheController: without them, there is no ConfigMap, as in the
// manifests.
func TestPoolsOfTheValuesAreTheFileOfTheController(t *testing.T) {
	_, exists := fileOfPools(t, nil)
	assert.False(t, exists)
	example, err := helm.Values(filepath.Join(placement.deploy, "..", "examples", "queue", "pools.yaml"))
	require.NoError(t, err)
	annotated := `{name: triggers, namespace: "1234", kinds: [{apiVersion: v1, kind: Trigger, annotationPrefix: a.example.com, payloadPath: spec}]}`
	for _, given := range []map[string]any{example, values(t, "{pools: ["+pool+", "+annotated+"]}")} {
		content, _ := fileOfPools(t, given)
		var file map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(content), &file))
		assert.Equal(t, given, file)
		assert.Contains(t, controllerSays(t, content), "kubeconfig", "the controller understands the file")
	}
}

// TestAChangeOfThePoolsRestartsTheController: it reads them when it starts.
func TestAChangeOfThePoolsRestartsTheController(t *testing.T) {
	assert.Empty(t, placement.pods(t, "{}").Annotations)
	one := placement.pods(t, "{podAnnotations: {a: b}, pools: ["+pool+"]}").Annotations
	assert.Equal(t, "b", one["a"])
	another := placement.pods(t, "{podAnnotations: {a: b}, pools: ["+strings.Replace(pool, "50", "51", 1)+"]}").Annotations
	assert.NotEqual(t, one, another)
	assert.Len(t, another, 2)
	assert.Equal(t, []string{"controller", "--pool-config=/etc/placement/pools.yaml", "--v=2"}, placement.pods(t, "{verbosity: 2}").Spec.Containers[0].Args)
}

// TestNotesHaveTheNextStep: the rights in the namespaces of the pools, or the file of the pools.
func TestNotesHaveTheNextStep(t *testing.T) {
	_, notes := placement.render(t, nil)
	assert.Contains(t, notes, "kubectl create configmap placement-pools -n placement-system --from-file=pools.yaml")
	_, notes = placement.render(t, values(t, "{pools: ["+pool+","+strings.ReplaceAll(strings.Replace(pool, "worker", "other", 1), "Queue", "Topic")+"]}"))
	assert.Equal(t, 1, strings.Count(notes, "-n shop --clusterrole=placement-pool --serviceaccount=placement-system:placement-controller\n"))
	assert.NotContains(t, notes, "create configmap")
}

// TestPoolsThatTheControllerRefusesAreRefused: each replacement breaks the pool above. A controller
// would refuse it only after the upgrade.
func TestPoolsThatTheControllerRefusesAreRefused(t *testing.T) {
	for _, tc := range []struct{ before, after, want string }{
		{"capacity: 50", "capcity: 50", "'capcity' not allowed"},
		{"kind: Queue", "kind: Queue, spec: x", "'spec' not allowed"},
		{"capacity: 50", "capacity: many", "/pools/0/capacity"},
		{"capacity: 50", "capacity: 1.5", "/pools/0/capacity"},
		{"capacity: 50", "capacity: -1", "/pools/0/capacity"},
		{"maxReplicas: 1000000", "maxReplicas: 0", "/pools/0/maxReplicas"},
		{"maxReplicas: 1000000", "maxReplicas: 1048577", "/pools/0/maxReplicas"},
		{"strategy: Pack", "strategy: pack", "/pools/0/strategy"},
		{"handover: Exclusive", "handover: Both", "/pools/0/handover"},
		{"patience: 1m", "patience: soon", "/pools/0/patience"},
		{"patience: 1m", "patience: 30", "/pools/0/patience"},
		{"statefulSet: worker, ", "", "pools[0].patience: only the pods of a statefulSet return under their names: set statefulSet, or remove patience"},
		{"statefulSet: worker", "statefulSet: A", "/pools/0/statefulSet"},
		{"name: worker,", "", "missing property 'name'"},
		{"name: worker,", "name: '',", "/pools/0/name"},
		{"namespace: shop", "namespace: Shop", "/pools/0/namespace"},
		{"kind: Queue, ", "", "missing property 'kind'"},
		{"replicasPath: spec.partitions, ", "", "pools[0].kinds[0].replicasPath: set the path of the desired number, or annotationPrefix"},
		{"replicasPath: spec.partitions, ", "replicasPath: '', ", "pools[0].kinds[0].replicasPath: set the path"},
		{"replicasPath: spec.partitions, ", "annotationPrefix: A, ", "/pools/0/kinds/0/annotationPrefix"},
		{"replicasPath: spec.partitions, ", "replicasPath: spec.n, annotationPrefix: a.b, ", "pools[0].kinds[0].replicasPath: with annotationPrefix, the annotation replicas has the desired number"},
		{"spec.partitions", "spec..partitions", "/pools/0/kinds/0/replicasPath"},
		{"status.placement", "spec", "/pools/0/kinds/0/statusPath"},
		{"example.com/v1", "a/b/c", "/pools/0/kinds/0/apiVersion"},
		{"kinds: [{", "kinds: [7, {", "/pools/0/kinds/0"},
		{"kinds: [{", "kinds: [{apiVersion: example.com/v2, kind: Queue, replicasPath: a}, {", "pools[0].kinds[1].kind: pools[0].kinds[0] has the same kind in the same namespace"},
		{pool, pool + "," + strings.Replace(pool, "worker", "other", 1), "pools[1].kinds[0].kind: pools[0].kinds[0] has the same kind"},
		{pool, pool + "," + pool, "pools[1].name: pools[0] has the same name and namespace: rename one of them"},
	} {
		broken := "pools: [" + strings.Replace(pool, tc.before, tc.after, 1) + "]"
		require.NotContains(t, broken, "["+pool+"]")
		_, _, err := helm.Render(t.Context(), placement.load(t), placement.release, values(t, broken))
		require.ErrorContains(t, err, tc.want, broken)
		assert.Contains(t, controllerSays(t, broken), "pools[", broken)
	}
}

// TestTheLifeOfAPlacement installs the chart in a namespace of another name. There, too, the policy
// lets the controller write the Leases of pods, but no other service account of their namespace.
func TestTheLifeOfAPlacement(t *testing.T) {
	elsewhere := placement
	elsewhere.release.Namespace = "placement-elsewhere"
	h := elsewhere.lives(t, "{}", "{leaseOwnerPolicy: true, pools: ["+pool+"]}")
	cm := &corev1.ConfigMap{}
	require.NoError(t, h.client.Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: "placement-pools"}, cm))
	assert.Contains(t, controllerSays(t, cm.Data["pools.yaml"]), "kubeconfig")

	write := func(account string) error {
		config := rest.CopyConfig(plane.Config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + h.namespace + ":" + account, Groups: []string{"system:masters", "system:serviceaccounts:" + h.namespace},
		}
		c, err := client.New(config, client.Options{})
		require.NoError(t, err)
		return c.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace, Name: "worker-0", Labels: map[string]string{"placement.nodekeeper.dev/pool": "worker"},
		}}, client.DryRunAll)
	}
	require.Eventually(t, func() bool { return apierrors.IsForbidden(write("worker")) }, time.Minute, 100*time.Millisecond, "the API server has the policy")
	require.NoError(t, write("placement-controller"))

	require.NoError(t, h.upgrade(nil, false))
	assert.False(t, h.exists("v1", "ConfigMap", h.namespace, "placement-pools"))
	require.Eventually(t, func() bool { return write("worker") == nil }, time.Minute, 100*time.Millisecond, "the policy is gone")
	elsewhere.dies(t, h)
	assert.False(t, h.exists("rbac.authorization.k8s.io/v1", "ClusterRole", "", "placement-agent"))
}
