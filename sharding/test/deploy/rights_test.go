package deploy

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// secretsOfStory is the number of Secrets in the story.
const secretsOfStory = 30

// notUsed are the rights that the story does not use, with the reason for granting each.
var notUsed = map[manifests.Right]string{
	{"sharder", "get", "configmaps", ""}: "the API server requires it of the creator of the policies",
	{"sharder", "get", "clusterrings.sharding.nodekeeper.dev", ""}: "the sharder reads a ring itself only if its cache is behind the " +
		"table of the ring",
}

// TestRightsAreExactlyEnough covers R39: it runs two sharders and the example with tokens of their
// service accounts, and triggers every action that needs a right.
func TestRightsAreExactlyEnough(t *testing.T) {
	s := newStory(t)
	given, excepted := manifests.Rights{}, manifests.Rights{}
	for one := range manifests.Granted(t, s.objects, system, checksums) {
		given[one] = one.Account == "sharder"
	}
	maps.DeleteFunc(given, func(_ manifests.Right, ofSharder bool) bool { return !ofSharder })
	for one := range notUsed {
		excepted[one] = true
	}
	require.Empty(t, excepted.Minus(given), "exceptions for rights that are not granted")
	ofSharder, ofReplicas := manifests.NewAudit(t, plane, system), manifests.NewAudit(t, plane, checksums)
	sharders := s.play()

	s.eventually(func(c *assert.CollectT) {
		ofSharder.Update(c)
		assert.Empty(c, given.Minus(ofSharder.Done.By(given), excepted), "rights that are given and not used")
	}, "every right is used")
	ofReplicas.Update(t)
	assert.Empty(t, ofSharder.Forbidden, "requests of the sharder")
	assert.Empty(t, ofReplicas.Forbidden, "requests of the replicas")
	used := ofSharder.Done.By(given)
	assert.Empty(t, used.Minus(given), "rights that are used, and not by these manifests given")
	for one, reason := range notUsed {
		assert.NotContains(t, used, one, "this is used: the reason %q does not hold", reason)
	}
	for _, p := range sharders {
		assert.NotContains(t, p.Output(), "forbidden")
	}
}

// play serves a ring whose shards join, die and do not respond, replaces the leader, and deletes the
// ring.
func (s *story) play() (sharders []*programs.Kept) {
	leader := s.sharder("sharder-0", nil)
	// As with an API server that does not stream lists, it lists first and then watches.
	standby := s.sharder("sharder-1", []string{"KUBE_FEATURE_WatchListClient=false"})
	s.unassigned("early", secretsOfStory/3)
	s.addExample()
	s.lease("long-gone", "")
	s.eventually(func(c *assert.CollectT) {
		s.condition(c, checksums, "Ready", metav1.ConditionFalse, "NoAvailableShard")
	}, "the ring has no shard yet")
	s.eventually(func(c *assert.CollectT) {
		s.condition(c, checksums, "PermissionsGranted", metav1.ConditionTrue, "Granted")
	}, "the example grants all rights for its ring")
	s.shard("checksum-0")
	s.secrets("s", secretsOfStory-secretsOfStory/3)
	s.served("checksum-0")
	dies := s.shard("checksum-1", "--lease-duration=15s")
	s.served("checksum-0", "checksum-1")
	require.NoError(s.t, dies.Kill())
	s.served("checksum-0")
	s.stuckShard()
	s.tamper()

	require.NoError(s.t, leader.Kill())
	s.customRing()
	s.merge(checksums, `{"spec":{"namespaceSelector":{"matchLabels":{"pod-security.kubernetes.io/enforce":"restricted"}}}}`)
	s.eventually(func(c *assert.CollectT) {
		policy := &admissionregistrationv1.MutatingAdmissionPolicy{}
		require.NoError(c, s.Get(s.t.Context(), types.NamespacedName{Name: "sharding-assign-" + checksums}, policy))
		assert.Contains(c, policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels, "pod-security.kubernetes.io/enforce")
	}, "the policy has changed")
	s.eventually(func(c *assert.CollectT) {
		err := s.Get(s.t.Context(), types.NamespacedName{Namespace: checksums, Name: "long-gone"}, &coordinationv1.Lease{})
		require.Error(c, err, "the Lease of the dead shard is there")
		require.NoError(c, client.IgnoreNotFound(err))
	}, "the Lease of a dead shard is deleted")
	require.NoError(s.t, standby.Stop(patience))
	last := s.webhooks()
	s.deleteRing()
	return []*programs.Kept{leader, standby, last}
}

// webhooks replaces the policies of the ring by webhooks, replaces their certificate, and changes them,
// which the sharder corrects.
func (s *story) webhooks() *programs.Kept {
	s.t.Helper()
	flags, err := crds.WebhookFlags()
	require.NoError(s.t, err)
	// It lists and then watches, like the standby.
	p := s.sharder("sharder-2", []string{"KUBE_FEATURE_WatchListClient=false"}, append(flags, "--admission=webhook")...)
	installed := func() {
		s.eventually(func(c *assert.CollectT) {
			s.condition(c, checksums, "AdmissionInstalled", metav1.ConditionTrue, "WebhookInstalled")
		}, "the API server calls the webhook")
	}
	installed()
	secret := &corev1.Secret{}
	require.NoError(s.t, s.Get(s.t.Context(), types.NamespacedName{Namespace: system, Name: "sharder-webhook"}, secret))
	before := string(secret.Data["ca.crt"])
	secret.Data = nil
	require.NoError(s.t, s.Update(s.t.Context(), secret))
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sharding-" + checksums}}
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.t.Context(), client.ObjectKeyFromObject(config), config))
		assert.NotEqual(c, before, string(config.Webhooks[0].ClientConfig.CABundle))
		config.Webhooks[0].TimeoutSeconds = new(int32(30))
		require.NoError(c, s.Update(s.t.Context(), config))
	}, "the webhook has another authority")
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.t.Context(), client.ObjectKeyFromObject(config), config))
		assert.Equal(c, int32(1), *config.Webhooks[0].TimeoutSeconds)
	}, "the webhook is as before")
	installed()
	return p
}

// stuckShard adds a shard that holds its Lease and releases no object, and another one that gets
// objects from it. The events about these objects refer to the same version of the ring, so the
// second one is a patch of the first.
func (s *story) stuckShard() {
	s.t.Helper()
	s.merge(checksums, `{"spec":{"handover":{"drainTimeout":"1s","settle":"0s"}}}`)
	s.lease("stuck", "stuck")
	s.eventually(func(c *assert.CollectT) {
		assert.NotZero(c, s.shares(c)["stuck"])
		s.condition(c, checksums, "Balanced", metav1.ConditionTrue, "Balanced")
	}, "the shard has its share of the objects, of which it has to give away several")
	s.shard("checksum-2")
	s.eventually(func(c *assert.CollectT) {
		s.condition(c, checksums, "Balanced", metav1.ConditionFalse, "DrainTimeout")
		assert.Greater(c, s.events(c, checksums)["DrainTimeout"], 1)
	}, "the objects are not released in time")
	released := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`))
	require.NoError(s.t, s.Patch(s.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: checksums, Name: "stuck"}}, released))
	s.served("checksum-0", "checksum-2")
}

// lease creates the Lease of a shard that does not renew it for ten minutes. The holder "" stands
// for a shard that has ended.
func (s *story) lease(name, holder string) {
	s.t.Helper()
	renewed := metav1.NowMicro()
	require.NoError(s.t, s.Create(s.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: checksums, Name: name, Labels: map[string]string{v1alpha1.DefaultPrefix.RingLabel(): checksums}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(600)), RenewTime: &renewed},
	}))
}

// shares returns the number of Secrets of each shard.
func (s *story) shares(t require.TestingT) map[string]int {
	secrets := &corev1.SecretList{}
	require.NoError(t, s.List(s.t.Context(), secrets, client.InNamespace(checksums)))
	all := map[string]int{}
	for _, secret := range secrets.Items {
		all[secret.Labels[v1alpha1.DefaultPrefix.ShardLabel(checksums)]]++
	}
	return all
}

// tamper changes bindings, which the sharder corrects.
func (s *story) tamper() {
	s.t.Helper()
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "sharding-assign-" + checksums}}
	fence := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "sharding-fence-" + checksums}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"no":"such"}}}}}`))
	require.NoError(s.t, s.Patch(s.t.Context(), binding, patch))
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.t.Context(), client.ObjectKeyFromObject(binding), binding))
		assert.Nil(c, binding.Spec.MatchResources)
	}, "the binding is as before")
	require.NoError(s.t, s.Patch(s.t.Context(), fence, patch))
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.Get(s.t.Context(), client.ObjectKeyFromObject(fence), fence))
		assert.Nil(c, fence.Spec.MatchResources)
	}, "the binding of the fence is as before")
}

// unassigned creates Secrets with their ConfigMaps before there is a ring.
func (s *story) unassigned(prefix string, n int) {
	s.t.Helper()
	for _, obj := range manifests.Render(s.t, example) {
		if obj.GetKind() == "Namespace" {
			require.NoError(s.t, manifests.Apply(s.t.Context(), s.Client, obj))
		}
	}
	s.secrets(prefix, n)
	for i := range n {
		secret := &corev1.Secret{}
		require.NoError(s.t, s.Get(s.t.Context(), types.NamespacedName{Namespace: checksums, Name: fmt.Sprintf("%s-%d", prefix, i)}, secret))
		child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: checksums, Name: "checksums-" + secret.Name}}
		require.NoError(s.t, controllerutil.SetControllerReference(secret, child, s.Scheme()))
		require.NoError(s.t, s.Create(s.t.Context(), child))
	}
}

// customRing creates a ring of a custom resource that the API server does not serve.
func (s *story) customRing() {
	s.t.Helper()
	ring := ringOf("widgets")
	ring.Spec.Shards.Namespace = checksums
	ring.Spec.Resources = []v1alpha1.Resource{{GroupResource: v1alpha1.GroupResource{Group: "example.com", Resource: "widgets"}}}
	require.NoError(s.t, s.Create(s.t.Context(), ring))
	s.eventually(func(c *assert.CollectT) {
		s.condition(c, "widgets", "AdmissionInstalled", metav1.ConditionFalse, "WaitingForResource")
		s.condition(c, "widgets", "PermissionsGranted", metav1.ConditionFalse, "Missing")
	}, "the resource is not served, and no role grants the sharder any right on it")
}

// deleteRing deletes both rings, and checks that no label and no table is left.
func (s *story) deleteRing() {
	s.t.Helper()
	s.kubectl("delete", "ring", checksums, "widgets", "--timeout="+patience.String())
	label := v1alpha1.DefaultPrefix.ShardLabel(checksums)
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}} {
		require.NoError(s.t, s.List(s.t.Context(), list, client.HasLabels{label}))
		assert.Zero(s.t, meta.LenList(list))
	}
	tables := &corev1.ConfigMapList{}
	require.NoError(s.t, s.List(s.t.Context(), tables, client.InNamespace(system)))
	for _, table := range tables.Items {
		assert.NotEqual(s.t, "sharding-table-"+checksums, table.Name)
	}
}
