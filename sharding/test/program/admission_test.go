package program

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	sharderring "nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/slots"
)

// podName is the extra attribute of a user that names the pod to which its token is bound.
const podName = "authentication.kubernetes.io/pod-name"

// admitting creates a ring with long-lived shards and waits until the API server assigns by it.
func (c *cluster) admitting(ring *v1alpha1.ClusterRing, shards ...string) *v1alpha1.ClusterRing {
	c.t.Helper()
	ring.Spec.Handover.Settle = &metav1.Duration{}
	c.create(ring)
	for _, name := range shards {
		c.lease(ring, name, 600, 0)
	}
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(t, s)
		if len(shards) > 0 {
			require.NotNil(t, s.Table)
			assert.Equal(t, shards, s.Table.Shards)
		}
	})
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(ring), ring))
	if len(shards) == 0 {
		return ring
	}
	last := shards[len(shards)-1]
	require.EventuallyWithT(c.t, func(t *assert.CollectT) { // the API server has observed this table
		probe := named(ring.Spec.Resources[0], c.namespace, c.owned(ring, last, ring.Spec.Resources[0]))
		require.NoError(t, c.Create(c.t.Context(), probe, client.DryRunAll))
		assert.Equal(t, last, probe.GetLabels()[prefix.ShardLabel(ring.Name)])
	}, patience, period)
	return ring
}

// installed checks that the API server assigns new objects by the policies or webhooks of a ring.
func (c *cluster) installed(t assert.TestingT, s *v1alpha1.ClusterRingStatus) {
	reason := "PolicyInstalled"
	if c.byWebhook {
		reason = "WebhookInstalled"
	}
	admitted(t, s, metav1.ConditionTrue, reason)
}

func admitted(t assert.TestingT, s *v1alpha1.ClusterRingStatus, status metav1.ConditionStatus, reason string) {
	condition := meta.FindStatusCondition(s.Conditions, "AdmissionInstalled")
	if assert.NotNil(t, condition) {
		assert.Equal(t, status, condition.Status, condition.Message)
		assert.Equal(t, reason, condition.Reason, condition.Message)
	}
}

// named returns an object of one of the resources that these tests use first.
func named(r v1alpha1.Resource, namespace, name string) client.Object {
	if r.Resource == "clusterroles" {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return secret(namespace, name)
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// placed returns the shard of a key in the table of a ring.
func placed(ring *v1alpha1.ClusterRing, key string) string {
	return ring.Status.Table.Shards[ring.Status.Table.Slots[slots.Slot(key)]]
}

// owned returns the name of an object that the table assigns to a shard.
func (c *cluster) owned(ring *v1alpha1.ClusterRing, shard string, r v1alpha1.Resource) string {
	o := slots.Object{Kind: "Secret", Namespace: c.namespace}
	if r.Resource == "clusterroles" {
		o = slots.Object{Group: rbacv1.GroupName, Kind: "ClusterRole"}
	}
	for i := 0; ; i++ {
		o.Name = fmt.Sprintf("%s-%d", c.namespace, i)
		if placed(ring, o.Key()) == shard {
			return o.Name
		}
	}
}

// config returns the administrator's connection.
func (c *cluster) config() *rest.Config {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	require.NoError(c.t, err)
	config.QPS = -1
	return config
}

// as returns a client for another administrator, because the sharder has the user of the first one.
// A service account can be bound to a pod.
func (c *cluster) as(user, pod string) client.Client {
	c.t.Helper()
	config := c.config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	if pod != "" {
		config.Impersonate.Extra = map[string][]string{podName: {pod}}
	}
	other, err := client.New(config, client.Options{})
	require.NoError(c.t, err)
	return other
}

// asSharder returns a client whose writes count as those of the sharder.
func (c *cluster) asSharder() client.Client {
	return client.WithFieldOwner(c.Client, sharderring.FieldManager)
}

func (c *cluster) account(name string) string {
	return "system:serviceaccount:" + c.namespace + ":" + name
}

func (c *cluster) stores(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		require.NoError(c.t, c.Create(c.t.Context(), o))
	}
}

// TestNewObjectsHaveTheirShardInTheFirstVersion covers R15, R16 and R18: an object is admitted
// whatever its name is, and even without shards. It also covers F5, because only the API server
// takes part, and F6 and F7, because generated and long names are admitted.
func TestNewObjectsHaveTheirShardInTheFirstVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.admitting(c.ring(""), "web-0", "web-1", "web-2")
	c.firstVersions(ring)
}

// firstVersions checks that new objects have their shard in their first version.
func (c *cluster) firstVersions(ring *v1alpha1.ClusterRing) {
	t := c.t
	t.Helper()
	empty := c.admitting(c.ring("-empty"))
	label := prefix.ShardLabel(ring.Name)
	names := []string{strings.Repeat("n", 253)}
	for i := range 20 {
		names = append(names, fmt.Sprintf("s.%d", i))
	}
	for _, name := range names {
		s := secret(c.namespace, name)
		c.stores(s)
		assert.Equal(t, placed(ring, slots.Object{Kind: "Secret", Namespace: c.namespace, Name: name}.Key()), s.Labels[label], name)
		assert.NotContains(t, s.Labels, prefix.ShardLabel(empty.Name))
		stored := &corev1.Secret{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(s), stored))
		assert.Equal(t, s.ResourceVersion, stored.ResourceVersion, "%s has its label in the first version", name)
	}
	generated := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "g-", Labels: map[string]string{label: "web-0"}}}
	c.stores(generated)
	assert.NotContains(t, generated.Labels, label)
	began := time.Now()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.NotEmpty(collect, c.reread(collect, generated).Labels[label])
	}, patience, period)
	t.Logf("an object with a generated name had its shard %s after its creation", time.Since(began))
}

// TestCopiedMetadataIsDropped covers F19: a new object has only the assignment by the table, or
// none, whatever the request contains.
func TestCopiedMetadataIsDropped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	withChildren := c.ring("")
	withChildren.Spec.Resources[0].ControlledResources = []v1alpha1.GroupResource{{Resource: "configmaps"}}
	ring := c.admitting(withChildren, "web-0")
	empty := c.admitting(c.ring("-empty"))
	metadata := func(name string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{"kept": "yes"}, Annotations: map[string]string{"kept": "yes"}}
		for _, r := range []string{ring.Name, empty.Name} {
			m.Labels[prefix.ShardLabel(r)], m.Labels[prefix.DrainLabel(r)] = "web-7", "web-8"
			m.Annotations[prefix.ChildrenAnnotation(r)] = "{}"
		}
		return m
	}
	s, foreign := &corev1.Secret{ObjectMeta: metadata("copy")}, &corev1.ConfigMap{ObjectMeta: metadata("copy")}
	generated := &corev1.Secret{ObjectMeta: metadata("")}
	generated.GenerateName = "copy-"
	foreign.Labels = map[string]string{prefix.ShardLabel(ring.Name): "web-7"}
	c.stores(s, foreign, generated)
	mine := func(labels map[string]string) map[string]string {
		for label := range labels { // labels of other tests
			if label != "kept" && !strings.Contains(label, c.namespace) {
				delete(labels, label)
			}
		}
		return labels
	}
	assert.Equal(t, map[string]string{"kept": "yes", prefix.ShardLabel(ring.Name): "web-0"}, mine(s.Labels))
	assert.Equal(t, map[string]string{"kept": "yes"}, s.Annotations)
	assert.Equal(t, map[string]string{"kept": "yes"}, mine(generated.Labels))
	assert.Empty(t, mine(foreign.Labels), "it does not belong to the ring")
}

// TestSilentShardGetsNoNewObjects covers R14 and F16: the table determines the owners of existing
// objects, and next the owners of new ones.
func TestSilentShardGetsNoNewObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.admitting(c.ring(""), "web-0")
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) { assert.Len(t, shares(s, now), 2) })
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
	name := c.owned(ring, "web-1", ring.Spec.Resources[0])
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		s := secret(c.namespace, name)
		require.NoError(t, c.Create(c.t.Context(), s, client.DryRunAll))
		assert.Equal(t, "web-1", s.Labels[prefix.ShardLabel(ring.Name)])
	}, patience, period)
	// The shard is silent from now on, and remains in the table for as long.
	c.change("web-1", `{"spec":{"leaseDurationSeconds":30,"renewTime":"`+metav1.NowMicro().UTC().Format(metav1.RFC3339Micro)+`"}}`)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		s := secret(c.namespace, name)
		require.NoError(t, c.Create(c.t.Context(), s, client.DryRunAll))
		assert.Equal(t, "web-0", s.Labels[prefix.ShardLabel(ring.Name)])
	}, patience, period)
	assert.Len(t, shares(c.status(t, ring), now), 2, "the shard is silent, and not dead")
}
