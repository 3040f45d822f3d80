package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
)

const (
	// alone disables leader election for a sharder that is the only one: on a busy machine, a
	// sharder that must renew its Lease in time may exit.
	alone            = "--leader-elect=false"
	period, patience = 100 * time.Millisecond, 3 * time.Minute
	prefix           = v1alpha1.DefaultPrefix
	// stopTimeout is less than the grace period of a pod.
	stopTimeout = 25 * time.Second
	// parallel is the number of concurrent tests.
	parallel = 8
)

// shared is an API server with one sharder, for tests that need nothing else. Rings are
// cluster-scoped, so every sharder works on all of them.
var (
	shared        *controlplane.ControlPlane
	sharedSharder *programs.Program
	// sharedMetrics is the address of its metrics.
	sharedMetrics string
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	if err := controlplane.Parallel(parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := controlplane.Run(m, func(c *controlplane.ControlPlane) {
		shared = c
		if err := prepare(c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	})
	if err := sites.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prepare installs the CRDs and starts a sharder, which ends with this process.
func prepare(plane *controlplane.ControlPlane) error {
	if err := crds.Install(context.Background(), plane.Config); err != nil {
		return err
	}
	if err := installControllerRings(context.Background(), plane.Config); err != nil {
		return err
	}
	var err error
	if sharedMetrics, err = ports.Address(); err != nil {
		return err
	}
	webhook, err := crds.WebhookFlags()
	if err != nil {
		return err
	}
	sharedSharder, err = programs.Start("sharder", "shared", plane.Kubeconfig, append(webhook, alone, "--compat=timebertt", "--metrics-bind-address="+sharedMetrics)...)
	return err
}

// cluster is a test's part of the API server: a namespace for shards, and rings whose names begin
// with the name of the namespace.
type cluster struct {
	client.Client

	t          *testing.T
	kubeconfig string
	namespace  string
	// plane is the API server if only this test uses it.
	plane *controlplane.ControlPlane
	// byWebhook is set if a webhook makes the decisions of the policies: on old API servers, or because
	// of [cluster.useWebhook].
	byWebhook bool
	// webhook are the flags with the address of the webhook of the sharder that started last.
	webhook []string
}

// newCluster returns a part of the shared API server with its sharder.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the sharder:\n%s", sharedSharder.Output())
		}
	})
	return clusterOn(t, shared)
}

// behindProxy makes sharders that start from now on reach the API server through a proxy.
func (c *cluster) behindProxy() *faultproxy.Proxy {
	c.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	require.NoError(c.t, err)
	proxy, err := faultproxy.Start(cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(proxy.Close)
	c.kubeconfig = filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(proxy.Kubeconfig(), c.kubeconfig))
	return proxy
}

// needPolicies skips the test if the API server does not serve the policies that assign new objects.
// It is for tests that look at the policies themselves.
func (c *cluster) needPolicies() {
	c.t.Helper()
	controlplane.NeedMutatingPolicies(c.t, c.kubeconfig)
}

// useWebhook makes sharders that start from now on serve a webhook, also if the API server has
// policies.
func (c *cluster) useWebhook() { c.byWebhook = true }

func clusterOn(t *testing.T, plane *controlplane.ControlPlane) *cluster {
	t.Helper()
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	return &cluster{
		Client: c, t: t, kubeconfig: plane.Kubeconfig, namespace: controlplane.Namespace(t, c),
		byWebhook: !controlplane.HasMutatingPolicies(t, plane.Kubeconfig),
	}
}

// ring returns a ring for the Secrets of the namespace. It is not created yet.
func (c *cluster) ring(name string) *v1alpha1.ClusterRing {
	return &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + name}, Spec: v1alpha1.ClusterRingSpec{
		Shards:    v1alpha1.Shards{Namespace: c.namespace},
		Resources: []v1alpha1.Resource{{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}}},

		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}},
	}}
}

// create creates a ring with a short settle time. It is deleted at the end of the test.
func (c *cluster) create(ring *v1alpha1.ClusterRing) *v1alpha1.ClusterRing {
	c.t.Helper()
	require.NoError(c.t, c.Create(c.t.Context(), ring))
	c.t.Cleanup(func() {
		assert.NoError(c.t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), ring)))
	})
	return ring
}

// failing starts a sharder that exits by itself with an error.
func (c *cluster) failing(identity string, args ...string) *programs.Program {
	c.t.Helper()
	p, err := programs.Start("sharder", identity, c.kubeconfig, append(args, alone)...)
	require.NoError(c.t, err)
	select {
	case <-p.Done():
		assert.Equal(c.t, 1, p.ExitCode())
	case <-time.After(patience):
		assert.NoError(c.t, p.Kill())
		require.Fail(c.t, "it does not end", p.Output())
	}
	return p
}

// sharder starts a sharder without leader election, which ends with the test. It must be the only
// one.
func (c *cluster) sharder(identity string, args ...string) *programs.Program {
	c.t.Helper()
	return c.start(identity, append(args, alone)...)
}

// start starts a sharder that ends with the test.
func (c *cluster) start(identity string, args ...string) *programs.Program {
	c.t.Helper()
	var err error
	c.webhook, err = crds.WebhookFlags()
	require.NoError(c.t, err)
	if c.byWebhook && controlplane.HasMutatingPolicies(c.t, c.kubeconfig) {
		c.webhook = append(c.webhook, "--admission=webhook")
	}
	return c.serve(identity, append(slices.Clone(c.webhook), args...))
}

// serve starts a sharder with these flags, which ends with the test.
func (c *cluster) serve(identity string, args []string) *programs.Program {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var err error
	for range 3 { // a sharder that starts while the machine stalls gives up on the API server; Kubernetes would restart it
		p, started := programs.Start("sharder", identity, c.kubeconfig, args...)
		require.NoError(c.t, started)
		c.t.Cleanup(func() {
			assert.NoError(c.t, p.Stop(stopTimeout))
			if c.t.Failed() {
				c.t.Logf("%s:\n%s", identity, p.Output())
			}
		})
		if err = p.WaitReady(ctx); err == nil {
			return p
		}
	}
	require.NoError(c.t, err)
	return nil
}

// status returns the status of a ring.
func (c *cluster) status(t require.TestingT, ring *v1alpha1.ClusterRing) *v1alpha1.ClusterRingStatus {
	stored := &v1alpha1.ClusterRing{}
	require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(ring), stored))
	return &stored.Status
}

// eventually waits until the status of a ring satisfies the assertions of check. If the ring has no
// table yet, check gets an empty one with a generation that no ring has.
func (c *cluster) eventually(ring *v1alpha1.ClusterRing, check func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		s := c.status(t, ring)
		if s.Table == nil {
			s.Table = &v1alpha1.Table{Generation: -1}
		}
		check(t, s)
	}, patience, period)
}

// states returns the states of the members by name.
func states(s *v1alpha1.ClusterRingStatus) map[string]string {
	all := map[string]string{}
	for _, m := range s.Members {
		all[m.Name] = m.State
	}
	return all
}

// shares returns the number of slots of each shard in a list of indexes.
func shares(s *v1alpha1.ClusterRingStatus, indexes func(*v1alpha1.Table) []int32) map[string]int {
	all := map[string]int{}
	if s.Table == nil {
		return all
	}
	for _, i := range indexes(s.Table) {
		all[s.Table.Shards[i]]++
	}
	return all
}

func now(t *v1alpha1.Table) []int32  { return t.Slots }
func next(t *v1alpha1.Table) []int32 { return t.Next }

// lease writes the Lease of a shard that holds it and renews it now, by a clock with the given
// offset.
func (c *cluster) lease(ring *v1alpha1.ClusterRing, name string, seconds int32, off time.Duration) {
	c.t.Helper()
	renewed := metav1.NewMicroTime(time.Now().Add(off))
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{prefix.RingLabel(): ring.Name}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	require.NoError(c.t, c.Create(c.t.Context(), l, client.FieldOwner("shard")))
}

// renew renews a Lease like its shard until the returned function is called.
func (c *cluster) renew(name string, every, off time.Duration) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			_ = c.Patch(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}, // retried with the next renewal
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"renewTime":"`+metav1.NewMicroTime(time.Now().Add(off)).UTC().Format(metav1.RFC3339Micro)+`"}}`)), client.FieldOwner("shard"))
		}, every)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	c.t.Cleanup(stop)
	return stop
}

// change applies a merge patch to a Lease.
func (c *cluster) change(name, patch string) {
	c.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	require.NoError(c.t, c.Patch(c.t.Context(), l, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("shard")))
}

// stored returns a Lease, or nil if it is deleted.
func (c *cluster) stored(t require.TestingT, name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	err := c.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, l)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	require.NoError(t, err)
	return l
}
