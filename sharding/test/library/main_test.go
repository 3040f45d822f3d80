package library

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
)

const (
	period, patience = 100 * time.Millisecond, 3 * time.Minute
	prefix           = v1alpha1.DefaultPrefix

	// longLease is for shards that must not die in a test, even if the machine stalls for half a
	// minute.
	longLease = time.Minute
	// parallel is the number of concurrent tests.
	parallel = 6
)

// shared is an API server with an audit log of all writes and one sharder, for all tests. Rings are
// cluster-scoped, so every sharder works on all of them.
var (
	shared        *controlplane.ControlPlane
	sharedSharder *programs.Program
	auditLog      string
)

func TestMain(m *testing.M) {
	if encoded := os.Getenv(sleeperEnv); encoded != "" { // this process is a shard of a test
		if err := runSleeper(encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	logf.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "nodekeeper-shard-")
	if err == nil {
		err = controlplane.Parallel(parallel)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(auditPolicy), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	auditLog = filepath.Join(dir, "audit.log")
	code := controlplane.RunWith(m, controlplane.Options{APIServerArgs: map[string][]string{
		"audit-policy-file": {filepath.Join(dir, "policy.yaml")}, "audit-log-path": {auditLog}, "audit-log-mode": {"blocking"},
	}}, func(c *controlplane.ControlPlane) {
		shared = c
		if err := prepare(c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// prepare installs the CRDs and starts a sharder, which ends with this process.
func prepare(plane *controlplane.ControlPlane) error {
	if err := crds.Install(context.Background(), plane.Config); err != nil {
		return err
	}
	webhook, err := crds.WebhookFlags()
	if err != nil {
		return err
	}
	sharedSharder, err = programs.Start("sharder", "shared", plane.Kubeconfig, append(webhook, "--leader-elect=false")...)
	return err
}

// cluster is a test's part of the API server: a namespace with a ring of its Secrets.
type cluster struct {
	client.Client

	t          *testing.T
	config     *rest.Config
	kubeconfig string
	namespace  string
	ring       *v1alpha1.ClusterRing
}

// newCluster returns a part of the shared API server. The ring has the name of the namespace and is
// deleted at the end of the test.
func newCluster(t *testing.T, changes ...func(*v1alpha1.ClusterRing)) *cluster {
	t.Helper()
	return clusterOn(t, shared, sharedSharder.Output, changes...)
}

// clusterOn is newCluster on another API server. The output of its sharder is shown if the test
// fails.
func clusterOn(t *testing.T, plane *controlplane.ControlPlane, sharder func() string, changes ...func(*v1alpha1.ClusterRing)) *cluster {
	t.Helper()
	direct, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	c := &cluster{Client: direct, t: t, config: plane.Config, kubeconfig: plane.Kubeconfig, namespace: controlplane.Namespace(t, direct)}
	c.ring = &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Spec: v1alpha1.ClusterRingSpec{
		Shards: v1alpha1.Shards{Namespace: c.namespace},
		Resources: []v1alpha1.Resource{{
			GroupResource:       v1alpha1.GroupResource{Resource: "secrets"},
			ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}},
		Handover:          v1alpha1.Handover{Settle: &metav1.Duration{}},
	}}
	for _, change := range changes {
		change(c.ring)
	}
	require.NoError(t, c.Create(t.Context(), c.ring))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), c.ring)))
		if t.Failed() {
			t.Logf("the sharder:\n%s", sharder())
		}
	})
	return c
}

// viaProxy returns a connection for one shard that a test can interrupt: a proxy, a config and a
// kubeconfig.
func (c *cluster) viaProxy() (*faultproxy.Proxy, *rest.Config, string) {
	c.t.Helper()
	proxy, err := faultproxy.Start(c.config)
	require.NoError(c.t, err)
	c.t.Cleanup(proxy.Close)
	kubeconfig := filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(proxy.Kubeconfig(), kubeconfig))
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(c.t, err)
	cfg.QPS = -1
	return proxy, cfg, kubeconfig
}

// secrets creates n Secrets.
func (c *cluster) secrets(n int) {
	c.t.Helper()
	for i := range n {
		c.secret(fmt.Sprintf("s-%d", i))
	}
}

func (c *cluster) secret(name string) {
	c.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, Data: map[string][]byte{"key": []byte(name)}}
	require.NoError(c.t, c.Create(c.t.Context(), s))
}

// owners returns the number of Secrets of each shard. Secrets without a shard or in a hand-over
// count for "".
func (c *cluster) owners(t require.TestingT) map[string]int {
	list := &corev1.SecretList{}
	require.NoError(t, c.List(c.t.Context(), list, client.InNamespace(c.namespace)))
	all := map[string]int{}
	for _, s := range list.Items {
		owner := s.Labels[prefix.ShardLabel(c.ring.Name)]
		if s.Labels[prefix.DrainLabel(c.ring.Name)] != "" {
			owner = ""
		}
		all[owner]++
	}
	return all
}

// eventually waits until all assertions of check hold.
func (c *cluster) eventually(check func(t *assert.CollectT), what string) {
	c.t.Helper()
	require.EventuallyWithT(c.t, check, patience, period, what)
}

// status returns the status of the ring.
func (c *cluster) status(t require.TestingT) *v1alpha1.ClusterRingStatus {
	stored := &v1alpha1.ClusterRing{}
	require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(c.ring), stored))
	return &stored.Status
}

// isBalanced asserts that every Secret is where the table places it.
func (c *cluster) isBalanced(t *assert.CollectT, shards ...string) {
	s := c.status(t)
	if assert.NotNil(t, s.Table) {
		assert.ElementsMatch(t, shards, s.Table.Shards)
		assert.Equal(t, s.Table.Generation, s.BalancedGeneration)
	}
	for owner := range c.owners(t) {
		assert.Contains(t, shards, owner)
	}
}
