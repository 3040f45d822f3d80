package program

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
)

// account is the service account of the shards in tests of fences.
const account = "operator"

// fenced creates a ring of Secrets and Deployments with a fence, and waits until it is installed.
func (c *cluster) fenced(fence v1alpha1.Fence, shards ...string) *v1alpha1.ClusterRing {
	c.t.Helper()
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{account}, fence
	ring.Spec.Resources = append(ring.Spec.Resources, v1alpha1.Resource{GroupResource: v1alpha1.GroupResource{Group: "apps", Resource: "deployments"}})
	c.admitting(ring, shards...)
	c.hasFence(ring, metav1.ConditionTrue, "Installed")
	return ring
}

// hasFence waits for the condition FenceInstalled of the present spec of a ring.
func (c *cluster) hasFence(ring *v1alpha1.ClusterRing, status metav1.ConditionStatus, reason string) {
	c.t.Helper()
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(ring), ring))
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		fence := meta.FindStatusCondition(s.Conditions, "FenceInstalled")
		require.NotNil(t, fence)
		assert.Equal(t, status, fence.Status, fence.Message)
		assert.Equal(t, reason, fence.Reason, fence.Message)
		assert.Equal(t, ring.Generation, fence.ObservedGeneration)
	})
}

// permit creates the shards' service account, which may do anything with the ring's objects in the
// namespace.
func (c *cluster) permit() {
	c.t.Helper()
	as := metav1.ObjectMeta{Namespace: c.namespace, Name: account}
	c.stores(
		&corev1.ServiceAccount{ObjectMeta: as},
		&rbacv1.Role{ObjectMeta: as, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}},
			{APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status", "deployments/scale"}, Verbs: []string{"*"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: as, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.namespace, Name: account}},
		},
	)
}

// stolen returns a client with a token of the shards' service account that is bound to a new pod,
// or to none.
func (c *cluster) stolen(pod string) client.Client {
	c.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != "" {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pod},
			Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		c.stores(p)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: account}}
	require.NoError(c.t, c.SubResource("token").Create(c.t.Context(), of, request))
	config := rest.AnonymousClientConfig(c.config())
	config.BearerToken, config.QPS = request.Status.Token, -1
	stolen, err := client.New(config, client.Options{})
	require.NoError(c.t, err)
	require.EventuallyWithT(c.t, func(t *assert.CollectT) { // the API server has observed the rights
		require.NoError(t, stolen.List(c.t.Context(), &corev1.SecretList{}, client.InNamespace(c.namespace)))
	}, patience, period)
	return stolen
}

// assigned creates an object and assigns it to a shard like the sharder.
func (c *cluster) assigned(ring *v1alpha1.ClusterRing, o client.Object, labels map[string]string) {
	c.t.Helper()
	c.stores(o)
	of := o.GetLabels()
	if of == nil {
		of = map[string]string{}
	}
	delete(of, prefix.ShardLabel(ring.Name))
	maps.Copy(of, labels)
	o.SetLabels(of)
	require.NoError(c.t, c.asSharder().Update(c.t.Context(), o))
}

func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
}

// changing are requests that change a Deployment, each as a caller can send it without a version.
var changing = map[string]func(*testing.T, client.Client, *appsv1.Deployment) error{
	"update": func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		t.Helper()
		d.Spec.Paused = !d.Spec.Paused
		return c.Update(t.Context(), d)
	},
	"merge patch": func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		t.Helper()
		return c.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))
	},
	"server-side apply": func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		t.Helper()
		return c.Patch(t.Context(), d, client.RawPatch(types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"minReadySeconds":5}}`, d.Name)), client.FieldOwner("test"), client.ForceOwnership)
	},
	"update of the status": func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		t.Helper()
		d.Status.ObservedGeneration++
		return c.Status().Update(t.Context(), d)
	},
	"deletion": func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		t.Helper()
		return c.Delete(t.Context(), d)
	},
	"deletion of a collection": func(t *testing.T, c client.Client, d *appsv1.Deployment) error {
		t.Helper()
		return c.DeleteAllOf(t.Context(), &appsv1.Deployment{}, client.InNamespace(d.Namespace), client.MatchingFields{"metadata.name": d.Name})
	},
}

// TestFenceRefusesOtherShards covers R34 with real tokens: the API server refuses each request of a
// shard for an object that another shard has, or that is moving.
func TestFenceRefusesOtherShards(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	c.permit()
	ring := c.fenced(v1alpha1.FenceDeny, "web-0", "web-1")
	require.NoError(t, only.Stop(stopTimeout)) // it would move these objects
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	owner, other, unbound := c.stolen("web-0"), c.stolen("web-1"), c.stolen("")
	n := 0
	for name, tc := range map[string]struct {
		caller  client.Client
		labels  map[string]string
		refused string
	}{
		"its shard":                  {owner, map[string]string{s: "web-0"}, ""},
		"its shard in a drain":       {owner, map[string]string{s: "web-0", d: "web-1"}, ""},
		"another shard":              {other, map[string]string{s: "web-0"}, "the object is assigned to shard web-0, and this request comes from web-1"},
		"the next shard":             {other, map[string]string{s: "web-0", d: "web-1"}, "the object is assigned to shard web-0, and this request comes from web-1"},
		"the former shard":           {owner, map[string]string{d: "web-1"}, "web-1, and this request comes from web-0"}, // the sharder completes the move
		"a token of no pod":          {unbound, map[string]string{s: "web-0"}, "the token of this request is not bound to a pod"},
		"an administrator":           {c.as("other", ""), map[string]string{s: "web-0"}, ""},
		"a pod with another account": {c.as(c.account("another"), "web-1"), map[string]string{s: "web-0"}, ""},
		"an account of that name":    {c.as("system:serviceaccount:default:"+account, "web-1"), map[string]string{s: "web-0"}, ""},
	} {
		for how, request := range changing {
			n++
			object := deployment(c.namespace, fmt.Sprintf("d-%d", n))
			c.assigned(ring, object, tc.labels)
			object.ResourceVersion = ""
			err := request(t, tc.caller, object)
			if tc.refused == "" {
				require.NoError(t, err, "%s: %s", name, how)
				continue
			}
			require.True(t, apierrors.IsForbidden(err), "%s: %s: %v", name, how, err)
			require.ErrorContains(t, err, tc.refused, "%s: %s", name, how)
			require.ErrorContains(t, err, s, "%s: %s", name, how)
		}
	}
}

// TestFenceWithoutEvidence names what R34 does not cover: a scale has no labels, and a new object
// no shard.
func TestFenceWithoutEvidence(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.permit()
	ring := c.fenced(v1alpha1.FenceDeny, "web-0", "web-1")
	other, object := c.stolen("web-1"), deployment(c.namespace, "scaled")
	c.assigned(ring, object, map[string]string{prefix.ShardLabel(ring.Name): "web-0"})
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	require.NoError(t, other.SubResource("scale").Update(t.Context(), object, client.WithSubResourceBody(scale)))
	require.NoError(t, other.Create(t.Context(), secret(c.namespace, c.owned(ring, "web-0", ring.Spec.Resources[0]))))
}

// TestFormerShardIsFenced covers R34: a request without a version that its shard sends after the
// object has moved is refused by the API server, which compares the stored object.
func TestFormerShardIsFenced(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	only := c.sharder("a")
	c.permit()
	ring := c.fenced(v1alpha1.FenceDeny, "web-0", "web-1")
	require.NoError(t, only.Stop(stopTimeout)) // it would move these objects
	s := prefix.ShardLabel(ring.Name)
	former, next := c.stolen("web-0"), c.stolen("web-1")
	object := secret(c.namespace, "moved")
	c.assigned(ring, object, map[string]string{s: "web-0"})
	work := client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"by":"web-0"}}`))
	require.NoError(t, former.Patch(t.Context(), object.DeepCopy(), work))
	require.NoError(t, c.asSharder().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"web-1"}}}`, s))))
	require.True(t, apierrors.IsForbidden(former.Patch(t.Context(), object.DeepCopy(), work)))
	require.True(t, apierrors.IsForbidden(former.Delete(t.Context(), object.DeepCopy())))
	require.NoError(t, next.Patch(t.Context(), object.DeepCopy(), work))
	require.NoError(t, next.Delete(t.Context(), object))
}

// violations returns how often the API server has found that a policy should refuse a request.
func (c *cluster) violations(t require.TestingT, policy, action string) int {
	api, err := kubernetes.NewForConfig(c.config())
	require.NoError(t, err)
	text, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(c.t.Context())
	require.NoError(t, err)
	found := regexp.MustCompile(`apiserver_validating_admission_policy_check_total\{enforcement_action="` + action + `",[^}]*policy="` + policy + `"[^}]*\} (\d+)`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

// TestFenceAudits covers Audit of R34 and R35: the requests succeed, and the API server counts
// them.
func TestFenceAudits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.fenced(v1alpha1.FenceAudit, "web-0", "web-1")
	other := c.as(c.account(account), "web-1")
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // until the API server applies them
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "s-"}}
		require.NoError(collect, c.Create(t.Context(), object))
		object.Labels, object.ResourceVersion = map[string]string{prefix.ShardLabel(ring.Name): "web-0"}, "" // the sharder may write, too
		require.NoError(collect, c.asSharder().Update(t.Context(), object))
		before := c.violations(collect, "sharding-fence-"+ring.Name, "audit")
		object.ResourceVersion = ""
		object.Labels[prefix.ShardLabel(ring.Name)] = "web-1"
		require.NoError(collect, c.as("person", "").Update(t.Context(), object))
		between := c.violations(collect, "sharding-fence-"+ring.Name, "audit")
		assert.Greater(collect, between, before, "a person has moved the object")
		object.Labels[prefix.ShardLabel(ring.Name)], object.ResourceVersion = "web-0", ""
		require.NoError(collect, c.asSharder().Update(t.Context(), object))
		require.NoError(collect, other.Delete(t.Context(), object))
		assert.Greater(collect, c.violations(collect, "sharding-fence-"+ring.Name, "audit"), between, "another shard has deleted it")
	}, patience, period)
}

// TestFormerGuardIsRemoved covers upgrades from sharders that had two validating policies for each
// ring: the guard goes when the fence, which does the same, is installed, or when the ring asks for
// none.
func TestFormerGuardIsRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.fenced(v1alpha1.FenceDeny, "web-0")
	for _, next := range []v1alpha1.Fence{v1alpha1.FenceAudit, v1alpha1.FenceNone} {
		former := c.formerGuard(ring)
		c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Fence = next })
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			for _, o := range former {
				err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
				assert.True(collect, apierrors.IsNotFound(err), "%T: %v", o, err)
			}
		}, patience, period, next)
	}
}

// formerGuard creates the guard of a ring as a former sharder had it: a copy of the fence.
func (c *cluster) formerGuard(ring *v1alpha1.ClusterRing) []client.Object {
	c.t.Helper()
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	for _, o := range []client.Object{policy, binding} {
		require.NoError(c.t, c.Get(c.t.Context(), types.NamespacedName{Name: "sharding-fence-" + ring.Name}, o))
		o.SetName("sharding-guard-" + ring.Name)
		o.SetResourceVersion("")
		o.SetUID("")
	}
	binding.Spec.PolicyName = policy.Name
	c.stores(policy, binding)
	return []client.Object{binding, policy}
}

// TestFenceFollowsItsRing covers R34 and R3: a fence is restored if another client changes it, is
// replaced with that of the spec, and goes with the ring. One of another owner is not overwritten.
func TestFenceFollowsItsRing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var foreign client.Object = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sharding-fence-" + c.ring("").Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "foreign", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
		},
	}
	c.stores(foreign)
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{account}, v1alpha1.FenceDeny
	c.admitting(ring, "web-0")
	c.hasFence(ring, metav1.ConditionFalse, "InstallFailed")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(t, ready)
		assert.Contains(t, ready.Message, "fence Deny refuses nothing yet: see condition FenceInstalled")
	})
	require.NoError(t, c.Delete(t.Context(), foreign))
	c.hasFence(ring, metav1.ConditionTrue, "Installed")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(t, ready)
		assert.NotContains(t, ready.Message, "fence")
	})
	for _, o := range c.fences(t, ring) {
		assert.Equal(t, ring.UID, metav1.GetControllerOf(o).UID)
		require.NoError(t, c.Delete(t.Context(), o))
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Len(t, c.fences(t, ring), 2) }, patience, period)
	c.hasFence(ring, metav1.ConditionTrue, "Installed")

	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Fence = v1alpha1.FenceNone })
	c.hasFence(ring, metav1.ConditionTrue, "Disabled")
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, c.fences(t, ring)) }, patience, period)
	c.update(ring, func(r *v1alpha1.ClusterRing) { r.Spec.Fence = v1alpha1.FenceAudit })
	c.hasFence(ring, metav1.ConditionTrue, "Installed")
	require.Len(t, c.fences(t, ring), 2)
	require.NoError(t, c.Delete(t.Context(), ring))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, c.fences(t, ring)) }, patience, period)
}

// fences returns the validating policies and bindings of a ring.
func (c *cluster) fences(t require.TestingT, ring *v1alpha1.ClusterRing) (all []client.Object) {
	for _, o := range []client.Object{
		withName(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "sharding-fence-"+ring.Name),
		withName(&admissionregistrationv1.ValidatingAdmissionPolicy{}, "sharding-fence-"+ring.Name),
	} {
		err := c.Get(c.t.Context(), client.ObjectKeyFromObject(o), o)
		require.NoError(t, client.IgnoreNotFound(err))
		if err == nil {
			all = append(all, o)
		}
	}
	return all
}

// TestFenceNeedsAdmission covers the reason FenceUnsupported without admission.
func TestFenceNeedsAdmission(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.serve("a", []string{alone, "--admission=none"})
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{account}, v1alpha1.FenceDeny
	c.create(ring)
	c.hasFence(ring, metav1.ConditionFalse, "FenceUnsupported")
	c.event(ring, "FenceUnsupported")
	require.Empty(t, c.fences(t, ring))
}

// TestFenceNeedsItsPlugin covers the reason FenceUnsupported for an API server that stores policies
// and does not apply them.
func TestFenceNeedsItsPlugin(t *testing.T) {
	t.Parallel()
	plane, err := controlplane.Start(controlplane.Options{APIServerArgs: map[string][]string{"disable-admission-plugins": {"ValidatingAdmissionPolicy"}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	require.NoError(t, crds.Install(t.Context(), plane.Config))
	c := siteOn(t, plane)
	c.sharder("a")
	ring := c.ring("")
	ring.Spec.Shards.ServiceAccounts, ring.Spec.Fence = []string{account}, v1alpha1.FenceDeny
	c.create(ring)
	c.hasFence(ring, metav1.ConditionFalse, "FenceUnsupported")
}
