package program

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// TestObjectsGoToTheirShards covers R22, R24, R26 and R27 without admission: nothing is written
// without a shard, the first shard gets all objects, and the objects of a shard that has released
// its Lease move according to the table, by one write each.
func TestObjectsGoToTheirShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{Duration: 10 * time.Minute} // no shard joins before one leaves
	c.create(ring)
	for i := range 60 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.True(t, meta.IsStatusConditionFalse(s.Conditions, "Ready"))
	})
	c.event(ring, "NoAvailableShard")
	none := fmt.Sprintf(`sharder_ring_condition{condition="Ready",reason="NoAvailableShard",ring=%q}`, ring.Name)
	if all := c.scrape(t); assert.Contains(t, all, none) {
		assert.Zero(t, all[none])
	}
	for name := range c.shardsOf(t, ring) {
		assert.Empty(t, name, "there is no shard")
	}

	c.lease(ring, "web-0", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 60}, c.shardsOf(collect, ring))
		assert.Zero(collect, s.Unassigned)
		assert.Equal(collect, s.Table.Generation, s.BalancedGeneration)
		assert.True(collect, meta.IsStatusConditionTrue(s.Conditions, "Balanced"))
	})
	before := c.versions(t)
	late := c.secret("late")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, "web-0", c.reread(collect, late).Labels[prefix.ShardLabel(ring.Name)])
	}, time.Minute, period, "a new object is assigned before the next resync, as sync-period is five minutes")
	require.NoError(t, c.Delete(t.Context(), late))

	c.lease(ring, "web-1", 600, 0)
	c.lease(ring, "web-2", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Len(collect, states(s), 3)
	})
	c.change("web-0", `{"spec":{"holderIdentity":""}}`)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, []string{"web-1", "web-2"}, s.Table.Shards)
		assert.Equal(collect, s.Table.Generation, s.BalancedGeneration)
		c.inPlace(collect, ring, s)
	})
	for name, version := range c.versions(t) {
		assert.NotEqual(t, before[name], version, "%s has moved", name)
	}
}

// TestObjectsMoveBetweenLiveShards covers R24, R27 and R28: a joining shard gets its share, each
// object when its shard has released it, and never more at the same time than the ring allows.
// Objects that are placed elsewhere by the table, or by a user, stay until they are released.
func TestObjectsMoveBetweenLiveShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.MaxConcurrentMoves, ring.Spec.Handover.Settle = 7, &metav1.Duration{}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	for i := range 80 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 80}, c.shardsOf(collect, ring))
		assert.Equal(collect, s.Table.Generation, s.BalancedGeneration)
	})
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Len(collect, c.draining(collect, ring), 7, "as many as may")
		assert.EqualValues(collect, 7, s.Moving)
		assert.Equal(collect, "Moving", reasonOf(s, "Balanced"))
	})
	assert.Equal(t, map[string]int{"web-0": 80}, c.shardsOf(t, ring), "objects that were not released stay")
	most := c.acknowledge(ring, "web-0")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.Equal(collect, s.Table.Generation, s.BalancedGeneration)
		assert.Zero(collect, s.Moving)
	})
	assert.LessOrEqual(t, most(), 7)
	assert.Len(t, c.shardsOf(t, ring), 2)

	c.change("web-1", `{"metadata":{"annotations":{"`+prefix.LeavingAnnotation()+`":"true"}}}`)
	c.acknowledge(ring, "web-1")
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 80}, c.shardsOf(collect, ring), "a leaving shard is drained")
		assert.Empty(collect, c.draining(collect, ring))
	})
}

// TestDrainTimeout covers R30 (F14: upstream's drains have no timeout): an object that is not
// released is reported and stays.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.DrainTimeout, ring.Spec.Handover.Settle = &metav1.Duration{Duration: time.Second}, &metav1.Duration{}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	for i := range 30 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 30}, c.shardsOf(collect, ring))
	})
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, "DrainTimeout", reasonOf(s, "Balanced"))
	})
	c.event(ring, "DrainTimeout")
	assert.Equal(t, map[string]int{"web-0": 30}, c.shardsOf(t, ring), "Wait goes on waiting")
	c.acknowledge(ring, "web-0")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.True(collect, meta.IsStatusConditionTrue(s.Conditions, "Balanced"))
	})
}

// TestChildrenMoveFirst covers R29 (F3: upstream moves children while the old shard is still
// working on their owner): the children of an object that was released, or whose shard is gone, are
// at the new shard before the object, whose annotation records their versions. Objects with another
// controller, or none, are not changed (F17).
func TestChildrenMoveFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	ring.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	shard := prefix.ShardLabel(ring.Name)
	for i := range 20 {
		s := c.secret(fmt.Sprintf("s-%d", i))
		for n := range 3 {
			c.child(s, fmt.Sprintf("c-%d-%d", i, n), nil)
		}
	}
	stranger := c.child(nil, "stranger", map[string]string{shard: "web-9"})
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 20}, c.shardsOf(collect, ring))
		assert.Equal(collect, map[string]int{"web-0": 60}, c.childrenOf(collect, ring))
	})
	broken := c.watchOrder(ring)
	c.lease(ring, "web-1", 600, 0)
	c.acknowledge(ring, "web-0")
	c.eventually(ring, func(collect *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(collect, ring, s)
		assert.Len(collect, c.shardsOf(collect, ring), 2)
		assert.Equal(collect, s.Table.Generation, s.BalancedGeneration)
	})
	for _, s := range c.secrets(t) {
		if s.Labels[shard] == "web-1" {
			assert.Regexp(t, `^\{"configmaps":"\d+"\}$`, s.Annotations[prefix.ChildrenAnnotation(ring.Name)])
		}
	}

	c.change("web-0", `{"spec":{"holderIdentity":""}}`)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-1": 20}, c.shardsOf(collect, ring))
		assert.Equal(collect, map[string]int{"web-1": 60}, c.childrenOf(collect, ring))
	})
	assert.Empty(t, broken(), "main objects that were at a shard before their children")
	c.counts(ring, "configmaps", "children")
	found := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(stranger), found))
	assert.Equal(t, stranger.ResourceVersion, found.ResourceVersion)
}

// TestWhatLeavesTheRingLosesItsLabels covers R3 (F18: upstream's labels remain when a ring, a
// resource or a selector is removed). The ring itself is deleted last.
func TestWhatLeavesTheRingLosesItsLabels(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.ring("")
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Resource: "configmaps"}})
	other := c.create(c.ring("-other"))
	c.create(ring)
	c.lease(ring, "web-0", 600, 0)
	c.lease(other, "other-0", 600, 0)
	s := c.secret("s")
	c.child(s, "c", nil)
	key := prefix.ShardLabel(ring.Name)
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]string{key: "web-0", prefix.ShardLabel(other.Name): "other-0"}, c.reread(collect, s).Labels, "each ring has its own labels, R2")
		assert.Equal(collect, map[string]int{"web-0": 1}, c.childrenOf(collect, ring))
	})

	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Resources = r.Spec.Resources[:1] })
	c.eventually(ring, func(collect *assert.CollectT, status *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"": 1}, c.childrenOf(collect, ring), "a resource leaves")
		assert.Equal(collect, []v1alpha1.GroupResource{{Resource: "secrets"}}, status.LabelledResources)
	})
	assert.Equal(t, map[string]int{"web-0": 1}, c.shardsOf(t, ring))

	elsewhere := map[string]string{corev1.LabelMetadataName: "elsewhere"}
	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.NamespaceSelector.MatchLabels = elsewhere })
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"": 1}, c.shardsOf(collect, ring), "a namespace leaves")
	})
	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.NamespaceSelector = other.Spec.NamespaceSelector })
	c.eventually(ring, func(collect *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(collect, map[string]int{"web-0": 1}, c.shardsOf(collect, ring), "a namespace returns")
	})

	require.NoError(t, c.Delete(t.Context(), ring))
	ctx, created := t.Context(), 1
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Create(ctx, secret(c.namespace, fmt.Sprintf("late-%d", created))), "creates succeed")
		created++
		assert.True(collect, apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(ring), ring)))
	}, patience, period)
	assert.Equal(t, map[string]int{"": created}, c.shardsOf(t, ring))
	assert.Equal(t, map[string]string{prefix.ShardLabel(other.Name): "other-0"}, c.reread(t, s).Labels, "the ring goes after its labels, and takes no others along")
}

// reasonOf returns the reason of a condition, or "" if it is missing.
func reasonOf(s *v1alpha1.ClusterRingStatus, condition string) string {
	if c := meta.FindStatusCondition(s.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// update changes a ring.
func (c *cluster) update(ring *v1alpha1.ClusterRing, change func(*v1alpha1.ClusterRing)) {
	c.t.Helper()
	require.NoError(c.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(c.t.Context(), client.ObjectKeyFromObject(ring), ring); err != nil {
			return err
		}
		change(ring)
		return c.Update(c.t.Context(), ring)
	}))
}

// secret creates a Secret.
func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	require.NoError(c.t, c.Create(c.t.Context(), s))
	return s
}

// secrets returns all Secrets of the namespace.
func (c *cluster) secrets(t require.TestingT) []corev1.Secret {
	all := &corev1.SecretList{}
	require.NoError(t, c.List(c.t.Context(), all, client.InNamespace(c.namespace)))
	return all.Items
}

// reread returns the current version of a Secret.
func (c *cluster) reread(t require.TestingT, s *corev1.Secret) *corev1.Secret {
	stored := &corev1.Secret{}
	require.NoError(t, c.Get(c.t.Context(), client.ObjectKeyFromObject(s), stored))
	return stored
}

// shardsOf returns the number of Secrets of each shard.
func (c *cluster) shardsOf(t require.TestingT, ring *v1alpha1.ClusterRing) map[string]int {
	shards := map[string]int{}
	for _, s := range c.secrets(t) {
		shards[s.Labels[prefix.ShardLabel(ring.Name)]]++
	}
	return shards
}

// versions returns the resourceVersion of each Secret.
func (c *cluster) versions(t require.TestingT) map[string]string {
	all := map[string]string{}
	for _, s := range c.secrets(t) {
		all[s.Name] = s.ResourceVersion
	}
	return all
}

// inPlace asserts that each Secret is where the table places it and is not in a hand-over.
func (c *cluster) inPlace(t assert.TestingT, ring *v1alpha1.ClusterRing, s *v1alpha1.ClusterRingStatus) {
	if !assert.NotNil(t, s.Table) || !assert.Len(t, s.Table.Slots, slots.Count) {
		return
	}
	for _, secret := range c.secrets(c.t) {
		key := slots.Object{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name}.Key()
		assert.Equal(t, s.Table.Shards[s.Table.Slots[slots.Slot(key)]], secret.Labels[prefix.ShardLabel(ring.Name)], "of %s", secret.Name)
		assert.NotContains(t, secret.Labels, prefix.DrainLabel(ring.Name), "of %s", secret.Name)
	}
}

// child creates a ConfigMap that an object controls.
func (c *cluster) child(owner *corev1.Secret, name string, labels map[string]string) *corev1.ConfigMap {
	c.t.Helper()
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: labels}}
	if owner != nil {
		child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Secret"))}
	}
	require.NoError(c.t, c.Create(c.t.Context(), child))
	return child
}

// childrenOf returns the number of controlled ConfigMaps of each shard.
func (c *cluster) childrenOf(t require.TestingT, ring *v1alpha1.ClusterRing) map[string]int {
	shards := map[string]int{}
	for _, child := range c.configMaps(t) {
		if metav1.GetControllerOf(&child) != nil {
			shards[child.Labels[prefix.ShardLabel(ring.Name)]]++
		}
	}
	return shards
}

// configMaps returns all ConfigMaps of the namespace.
func (c *cluster) configMaps(t require.TestingT) []corev1.ConfigMap {
	all := &corev1.ConfigMapList{}
	require.NoError(t, c.List(c.t.Context(), all, client.InNamespace(c.namespace)))
	return all.Items
}

// draining returns the Secrets in a hand-over.
func (c *cluster) draining(t require.TestingT, ring *v1alpha1.ClusterRing) (all []corev1.Secret) {
	for _, s := range c.secrets(t) {
		if s.Labels[prefix.DrainLabel(ring.Name)] != "" {
			all = append(all, s)
		}
	}
	return all
}

// acknowledge releases objects on request, like a shard of protocol 2, until the test ends. It
// returns a function that returns the maximum number of objects in a hand-over at the same time.
func (c *cluster) acknowledge(ring *v1alpha1.ClusterRing, shard string) (most func() int) {
	c.t.Helper()
	var highest atomic.Int64
	key := prefix.ShardLabel(ring.Name)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+key+`":null}}}`))
	c.background(func(ctx context.Context) {
		all := &corev1.SecretList{}
		if c.List(ctx, all, client.InNamespace(c.namespace), client.HasLabels{prefix.DrainLabel(ring.Name)}) != nil {
			return // retried with the next list
		}
		highest.Store(max(highest.Load(), int64(len(all.Items))))
		for _, s := range all.Items {
			if s.Labels[key] == shard {
				_ = c.Patch(ctx, &s, patch)
			}
		}
	})
	return func() int { return int(highest.Load()) }
}

// acknowledgeAll releases all objects that any shard of a ring is asked to release, until the test
// ends.
func (c *cluster) acknowledgeAll(ring *v1alpha1.ClusterRing) {
	for _, m := range c.leases(ring) {
		c.acknowledge(ring, m)
	}
}

// leases returns the names of the Leases of a ring.
func (c *cluster) leases(ring *v1alpha1.ClusterRing) (names []string) {
	all := &coordinationv1.LeaseList{}
	require.NoError(c.t, c.List(c.t.Context(), all, client.InNamespace(c.namespace), client.MatchingLabels{prefix.RingLabel(): ring.Name}))
	for _, l := range all.Items {
		names = append(names, l.Name)
	}
	return names
}

// background repeats a function until the test ends.
func (c *cluster) background(do func(context.Context)) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, do, period)
	}()
	c.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// watchOrder follows the Secrets of a ring from now on. It returns a function that returns the
// names of the Secrets that were assigned to a shard while one of their children was at another
// shard.
func (c *cluster) watchOrder(ring *v1alpha1.ClusterRing) (broken func() []string) {
	c.t.Helper()
	watching, err := client.NewWithWatch(c.config(), client.Options{})
	require.NoError(c.t, err)
	w, err := watching.Watch(c.t.Context(), &corev1.SecretList{}, client.InNamespace(c.namespace))
	require.NoError(c.t, err)
	c.t.Cleanup(w.Stop)
	var mu sync.Mutex
	var names []string
	key := prefix.ShardLabel(ring.Name)
	go func() {
		for e := range w.ResultChan() {
			s, ok := e.Object.(*corev1.Secret)
			if !ok || s.Labels[key] == "" || s.Labels[prefix.DrainLabel(ring.Name)] != "" {
				continue
			}
			children := &corev1.ConfigMapList{}
			if err := watching.List(c.t.Context(), children, client.InNamespace(c.namespace)); err != nil {
				return // the test ends
			}
			for _, child := range children.Items {
				// A child can be ahead of the observed version of its owner only if the owner has
				// moved again.
				if owner := metav1.GetControllerOf(&child); owner != nil && owner.UID == s.UID && child.Labels[key] != s.Labels[key] && older(child.ResourceVersion, s.ResourceVersion) {
					mu.Lock()
					names = append(names, s.Name+" by "+child.Name)
					mu.Unlock()
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return names
	}
}

// older reports whether a resourceVersion precedes another one.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
