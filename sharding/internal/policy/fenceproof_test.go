package policy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientsets "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/internal/policy"
	sharderring "nodekeeper.dev/sharding/internal/ring"
)

// fencedCluster has a ring of Secrets with fence Deny, and an API server that applies its fences
// while refuses is set.
type fencedCluster struct {
	client  client.Client
	ring    *v1alpha1.ClusterRing
	refuses bool
	// failing is the error of writes of other policies.
	failing error
	pod     *corev1.Pod
}

func newFencedCluster(t *testing.T) *fencedCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, admissionregistrationv1.AddToScheme, authenticationv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	r := ring()
	r.Spec.Fence, r.Spec.Shards.ServiceAccounts = v1alpha1.FenceDeny, []string{"web"}
	r.Spec.Resources = []v1alpha1.Resource{{GroupResource: secrets.GroupResource}}
	r.Status.LabelledResources = []v1alpha1.GroupResource{secrets.GroupResource}
	c := &fencedCluster{ring: r, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web-system", Name: "web-0"}, Spec: corev1.PodSpec{ServiceAccountName: "web"}}}
	b := &policy.Builder{Prefix: v1alpha1.DefaultPrefix, Namespace: "sharder-system", Sharders: []string{"sharder"}}
	f := b.BuildFence(r, []policy.Resource{secrets})
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(r).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o := o.(type) {
			case *v1alpha1.ClusterRing:
				if c.refuses && o.Labels[v1alpha1.DefaultPrefix.DrainLabel("web")] == f.Revision {
					return errors.New(f.Policy.Name + ": " + f.Revision)
				}
				return nil
			case *admissionregistrationv1.MutatingAdmissionPolicy:
				if c.failing != nil {
					return c.failing
				}
				return w.Create(ctx, o, opts...)
			case *authenticationv1.SelfSubjectReview:
				o.Status.UserInfo.Username = "sharder"
				return nil
			default:
				return w.Create(ctx, o, opts...)
			}
		},
	}).Build()
	return c
}

// process returns a process that has seen nothing yet.
func (c *fencedCluster) process() *policy.Controller {
	return &policy.Controller{
		Client: c.client, Reports: &sharderring.Reports{}, Dialect: sharderring.Dialect{Prefix: v1alpha1.DefaultPrefix}, Namespace: "sharder-system",
		Mode: policy.ByPolicy, Fences: true, SyncPeriod: time.Minute, Pods: clientsets.NewClientset(c.pod).CoreV1(),
		Resources: &policy.Resources{Reader: c.client, Discovery: served{}, Clock: time.Now},
	}
}

// installed reconciles the ring, and reports whether its fence counts as installed.
func installed(t *testing.T, p *policy.Controller) bool {
	t.Helper()
	_, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "web"}})
	require.NoError(t, err)
	var all []metav1.Condition
	p.Reports.Change("web", func(r *sharderring.Report) { all = r.Conditions })
	return meta.IsStatusConditionTrue(all, place.FenceInstalled)
}

// TestFenceSettles covers R34: a fence counts as installed once each dry run of 3 s was refused,
// also after one that was not.
func TestFenceSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFencedCluster(t)
		p := c.process()
		for range 2 {
			c.refuses = false
			assert.False(t, installed(t, p))
			time.Sleep(10 * time.Second)
			c.refuses = true
			assert.False(t, installed(t, p), "the first refusal")
			time.Sleep(2 * time.Second)
			assert.False(t, installed(t, p), "another API server may not have loaded it")
			time.Sleep(time.Second)
			assert.True(t, installed(t, p))
		}
	})
}

// TestFencedIsCheckedLive covers R30: before an object is taken by force, a process checks what it
// has seen itself, what is stored, and which account the shard has.
func TestFencedIsCheckedLive(t *testing.T) {
	fence := types.NamespacedName{Name: "sharding-fence-web"}
	for name, tc := range map[string]struct {
		change func(t *testing.T, c *fencedCluster)
		isNew  bool
		shard  string
		want   bool
	}{
		"the fence works":             {shard: "web-0", want: true},
		"another process has seen it": {shard: "web-0", isNew: true},
		"the ring has changed since":  {shard: "web-0", change: func(_ *testing.T, c *fencedCluster) { c.ring.Generation++ }},
		"the ring was made again":     {shard: "web-0", change: func(_ *testing.T, c *fencedCluster) { c.ring.UID = "another" }},
		"the shard has no pod":        {shard: "web-1"},
		"the pod has another account": {shard: "web-0", change: func(_ *testing.T, c *fencedCluster) { c.pod.Spec.ServiceAccountName = "web-operator" }},
		"a dry run is not refused":    {shard: "web-0", change: func(_ *testing.T, c *fencedCluster) { c.refuses = false }},
		"the policy was edited": {shard: "web-0", change: func(t *testing.T, c *fencedCluster) {
			t.Helper()
			is := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			require.NoError(t, c.client.Get(t.Context(), fence, is))
			is.Spec.MatchConstraints.ResourceRules = is.Spec.MatchConstraints.ResourceRules[1:]
			require.NoError(t, c.client.Update(t.Context(), is))
		}},
		"the binding was edited": {shard: "web-0", change: func(t *testing.T, c *fencedCluster) {
			t.Helper()
			is := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			require.NoError(t, c.client.Get(t.Context(), fence, is))
			is.Spec.MatchResources = &admissionregistrationv1.MatchResources{}
			require.NoError(t, c.client.Update(t.Context(), is))
		}},
		"the binding is gone": {shard: "web-0", change: func(t *testing.T, c *fencedCluster) {
			t.Helper()
			require.NoError(t, c.client.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fence.Name}}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFencedCluster(t)
				c.refuses = true
				p := c.process()
				installed(t, p)
				time.Sleep(3 * time.Second)
				require.True(t, installed(t, p))
				if tc.change != nil {
					tc.change(t, c)
				}
				proofs := p
				if proofs.Pods = clientsets.NewClientset(c.pod).CoreV1(); tc.isNew {
					proofs = c.process()
				}
				got, err := proofs.Fenced(t.Context(), c.ring, tc.shard)
				require.NoError(t, err)
				assert.Equal(t, tc.want, got)
			})
		})
	}
}

// TestFenceIsCheckedWhileAdmissionFails: a fence is proven in seconds, although other policies of
// the ring cannot be written.
func TestFenceIsCheckedWhileAdmissionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFencedCluster(t)
		c.refuses, c.failing = true, errors.New("no")
		p := c.process()
		assert.False(t, installed(t, p))
		time.Sleep(3 * time.Second)
		assert.True(t, installed(t, p))
		result, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "web"}})
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, result.RequeueAfter)
	})
}
