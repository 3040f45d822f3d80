package program

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/compat"
)

// foreign is the prefix of the keys in this file. They are spelled out as the shards of
// timebertt/kubernetes-controller-sharding use them.
const foreign = "alpha.sharding.timebertt.dev"

func foreignShard(ring string) string { return "shard." + foreign + "/" + ring }
func foreignDrain(ring string) string { return "drain." + foreign + "/" + ring }

// foreignRing is a ControllerRing with a record of the work on its objects.
type foreignRing struct {
	*cluster

	name string
	mu   sync.Mutex
	// working maps the objects that are being worked on to their shards.
	working map[types.UID]string
	// done counts the reconciles of each shard.
	done map[string]int
}

// installControllerRings installs the CRD of ControllerRings.
func installControllerRings(ctx context.Context, cfg *rest.Config) error {
	content, err := os.ReadFile("testdata/controllerrings.yaml")
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, crd); err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	if err := c.Create(ctx, crd); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, period, patience, true, func(ctx context.Context) (bool, error) {
		fresh, err := client.New(cfg, client.Options{}) // with the kinds that are served by now
		if err != nil {
			return false, err
		}
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(compat.Kind)
		return fresh.List(ctx, all) == nil, nil
	})
}

// controllerRing creates a ControllerRing for the Secrets of the namespace. It is deleted at the
// end of the test.
func (c *cluster) controllerRing(name string, controlled ...v1alpha1.GroupResource) *foreignRing {
	c.t.Helper()
	resource := map[string]any{"group": "", "resource": "secrets"}
	for _, r := range controlled {
		list, _ := resource["controlledResources"].([]any)
		resource["controlledResources"] = append(list, map[string]any{"group": r.Group, "resource": r.Resource})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"resources":         []any{resource},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: c.namespace}},
	}}}
	u.SetGroupVersionKind(compat.Kind)
	u.SetName(c.namespace + name)
	require.NoError(c.t, c.Create(c.t.Context(), u))
	c.t.Cleanup(func() {
		assert.NoError(c.t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), u)))
	})
	return &foreignRing{cluster: c, name: u.GetName(), working: map[types.UID]string{}, done: map[string]int{}}
}

// read returns the ControllerRing.
func (r *foreignRing) read(t require.TestingT) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(compat.Kind)
	require.NoError(t, r.Get(r.t.Context(), types.NamespacedName{Name: r.name}, u))
	return u
}

// foreignStatus contains the status fields of a ControllerRing that the sharder writes.
type foreignStatus struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	Shards             int32              `json:"shards"`
	AvailableShards    int32              `json:"availableShards"`
	Conditions         []metav1.Condition `json:"conditions"`
}

func (r *foreignRing) foreignStatus(t require.TestingT) (s foreignStatus) {
	found, _, err := unstructured.NestedMap(r.read(t).Object, "status")
	require.NoError(t, err)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(found, &s))
	return s
}

// mirror returns the ClusterRing of that name.
func (r *foreignRing) mirror() *v1alpha1.ClusterRing {
	return &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
}

// shardsOf returns the number of Secrets of each shard.
func (r *foreignRing) shardsOf(t require.TestingT) map[string]int {
	shards := map[string]int{}
	for _, s := range r.secrets(t) {
		shards[s.Labels[foreignShard(r.name)]]++
	}
	return shards
}

// shard is a shard of that project, implemented from the description of its protocol: it keeps one
// Lease with its own name and the label of its ring, reconciles the objects whose label names it
// sequentially, and removes both labels from objects that it is asked to release.
type shard struct {
	of   *foreignRing
	name string
	// pod has the identity of a pod with the name of the shard.
	pod     client.Client
	seconds int32
	lease   *coordinationv1.Lease
	kill    context.CancelFunc
	ended   chan struct{}
}

// start starts a shard with a Lease in a namespace. It ends with the test at the latest.
func (r *foreignRing) start(namespace, name string, seconds int32) *shard {
	r.t.Helper()
	ctx, kill := context.WithCancel(r.t.Context())
	s := &shard{of: r, name: name, pod: r.as("shard", name), seconds: seconds, kill: kill, ended: make(chan struct{}), lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{foreign + "/controllerring": r.name},
	}}}
	s.renew()
	require.NoError(r.t, r.Create(ctx, s.lease, client.FieldOwner("shard")))
	go func() {
		defer close(s.ended)
		var loops sync.WaitGroup
		loops.Go(func() { wait.UntilWithContext(ctx, s.keep, time.Duration(seconds)*time.Second/5) })
		loops.Go(func() { wait.UntilWithContext(ctx, s.reconcileAll, period) })
		loops.Wait()
	}()
	r.t.Cleanup(s.die)
	return s
}

// die ends the shard like a crash.
func (s *shard) die() {
	s.kill()
	<-s.ended
}

// release ends the shard and releases its Lease, like a shutdown.
func (s *shard) release(t require.TestingT) {
	s.die()
	patch := []byte(`{"spec":{"holderIdentity":""}}`)
	require.NoError(t, s.of.Patch(s.of.t.Context(), s.lease, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("shard")))
}

func (s *shard) renew() {
	now := metav1.NowMicro()
	s.lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &s.name, LeaseDurationSeconds: &s.seconds, RenewTime: &now}
}

// keep renews the Lease if it is as last observed. If it has changed, keep reads it again, and the
// shard stops if another client holds it.
func (s *shard) keep(ctx context.Context) {
	s.renew()
	err := s.of.Update(ctx, s.lease, client.FieldOwner("shard"))
	if err == nil || !apierrors.IsConflict(err) {
		return
	}
	if s.of.Get(ctx, client.ObjectKeyFromObject(s.lease), s.lease) != nil {
		return
	}
	if holder := s.lease.Spec.HolderIdentity; holder == nil || *holder != s.name {
		s.kill()
	}
}

func (s *shard) reconcileAll(ctx context.Context) {
	mine := &corev1.SecretList{}
	key := foreignShard(s.of.name)
	if s.of.List(ctx, mine, client.InNamespace(s.of.namespace), client.MatchingLabels{key: s.name}) != nil {
		return
	}
	for _, object := range mine.Items {
		if ctx.Err() != nil {
			return
		}
		if _, isAsked := object.Labels[foreignDrain(s.of.name)]; isAsked {
			before := object.DeepCopy()
			maps.DeleteFunc(object.Labels, func(label, _ string) bool { return label == key || label == foreignDrain(s.of.name) })
			_ = s.pod.Patch(ctx, &object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // or with the next iteration
			continue
		}
		s.of.reconcile(object.UID, s.name)
	}
}

// reconcile works on an object for a while, during which no other shard may work on it.
func (r *foreignRing) reconcile(uid types.UID, by string) {
	r.mu.Lock()
	if other := r.working[uid]; other != "" {
		r.t.Errorf("%s and %s reconcile %s at once", other, by, uid)
	}
	r.working[uid] = by
	r.mu.Unlock()
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.working, uid)
	r.done[by]++
}

// reconciledBy returns how often a shard has reconciled an object.
func (r *foreignRing) reconciledBy(shard string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[shard]
}

// TestForeignShardsRunUnmodified covers R46: shards of timebertt/kubernetes-controller-sharding
// join, get objects in the requests that create them, release them, release their Leases and die.
// The policies omit the parts of R19 to R21 that require the shards' service accounts.
func TestForeignShardsRunUnmodified(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := c.controllerRing("")
	r.start(c.namespace, "web-0", 600)
	available := func(shards int32) {
		t.Helper()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			s := r.foreignStatus(collect)
			assert.Equal(collect, shards, s.AvailableShards)
			assert.GreaterOrEqual(collect, s.Shards, shards, "a dead one counts until its Lease goes")
			assert.True(collect, meta.IsStatusConditionTrue(s.Conditions, "Ready"))
		}, patience, period)
	}
	has := func(shards map[string]int) {
		t.Helper()
		require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.Equal(collect, shards, r.shardsOf(collect)) }, patience, period)
	}
	available(1)
	ring := r.mirror()
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(collect, s)
	})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		probe := secret(c.namespace, "probe")
		require.NoError(collect, c.Create(c.t.Context(), probe, client.DryRunAll))
		assert.Equal(collect, "web-0", probe.Labels[foreignShard(r.name)], "the API server has the table")
	}, patience, period)
	for i := range 30 {
		s := c.secret(fmt.Sprintf("s-%d", i))
		assert.Equal(t, map[string]string{foreignShard(r.name): "web-0"}, s.Labels, "in the first version, and nothing else")
	}

	c.update(ring, func(ring *v1alpha1.ClusterRing) { ring.Spec.Handover.Settle = &metav1.Duration{} })
	second := r.start("default", r.name, 600) // in another namespace
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Len(collect, r.shardsOf(collect), 2)
		assert.Positive(collect, r.shardsOf(collect)[second.name])
		assert.Positive(collect, r.reconciledBy(second.name), "it has objects, and works on them")
		for _, s := range c.secrets(collect) {
			assert.NotContains(collect, s.Labels, foreignDrain(r.name))
		}
	}, patience, period)
	available(2)
	second.release(t)
	has(map[string]int{"web-0": 30})
	available(1)

	third := r.start(c.namespace, "web-2", duration)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Positive(collect, r.shardsOf(collect)["web-2"])
	}, patience, period)
	third.die()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		l := c.stored(collect, "web-2")
		require.NotNil(collect, l)
		assert.Equal(collect, "shardlease-controller", *l.Spec.HolderIdentity)
		assert.EqualValues(collect, 2*duration, *l.Spec.LeaseDurationSeconds)
		assert.Equal(collect, "dead", l.Labels[foreign+"/state"])
	}, patience, period)
	has(map[string]int{"web-0": 30})
	assert.Equal(t, "ready", c.stored(t, "web-0").Labels[foreign+"/state"])
	assert.Positive(t, r.reconciledBy("web-0"))
}

// TestChildrenFollowForeignShards covers the rest of protocol 1, for which R29 does not hold:
// children move after their main object.
func TestChildrenFollowForeignShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	r := c.controllerRing("", v1alpha1.GroupResource{Resource: "configmaps"})
	r.start(c.namespace, "web-0", 600)
	for i := range 30 {
		c.child(c.secret(fmt.Sprintf("s-%d", i)), fmt.Sprintf("c-%d", i), nil)
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, map[string]int{"web-0": 30}, r.shardsOf(collect))
		assert.Equal(collect, map[string]int{"web-0": 30}, r.childrenOf(collect))
	}, patience, period)
	begin := time.Now()
	r.start(c.namespace, "web-1", 600)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Positive(collect, r.shardsOf(collect)["web-1"])
		owners := map[types.UID]string{}
		for _, s := range c.secrets(collect) {
			owners[s.UID] = s.Labels[foreignShard(r.name)]
		}
		for _, child := range c.configMaps(collect) {
			if owner := metav1.GetControllerOf(&child); owner != nil {
				assert.NotEmpty(collect, owners[owner.UID])
				assert.Equal(collect, owners[owner.UID], child.Labels[foreignShard(r.name)], child.Name)
			}
		}
	}, patience, period)
	t.Logf("objects and their children were at the other shard %s after it had joined", time.Since(begin))
}

// childrenOf returns the number of controlled ConfigMaps of each shard.
func (r *foreignRing) childrenOf(t require.TestingT) map[string]int {
	shards := map[string]int{}
	for _, child := range r.configMaps(t) {
		if metav1.GetControllerOf(&child) != nil {
			shards[child.Labels[foreignShard(r.name)]]++
		}
	}
	return shards
}
