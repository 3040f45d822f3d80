package policy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
	sharderring "nodekeeper.dev/sharding/internal/ring"
)

// served is a discovery client for Secrets only.
type served struct{}

func (served) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "secrets", Kind: "Secret", Namespaced: true}}}}, nil
}

// Another admission plugin may refuse rings that the sharder creates, even in a dry run.
func TestPoliciesCountAsAppliedLaterIfProbesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		waits   bool
	}{
		"refused":     {apierrors.NewForbidden(schema.GroupResource{Resource: "clusterrings"}, "", nil), false},
		"unavailable": {apierrors.NewServiceUnavailable("no schema yet"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controller(t, tc.refusal)
				for range 34 {
					assert.Equal(t, time.Second, reconcileAgain(t, c))
					time.Sleep(time.Second)
				}
				time.Sleep(2 * time.Second)
				assert.Equal(t, tc.waits, reconcileAgain(t, c) > 0)
			})
		})
	}
}

func reconcileAgain(t *testing.T, c *policy.Controller) time.Duration {
	t.Helper()
	result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "web"}})
	require.NoError(t, err)
	return result.RequeueAfter
}

// controller returns a controller for one ring of Secrets, whose probes fail with the given error.
func controller(t *testing.T, refusal error) *policy.Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, admissionregistrationv1.AddToScheme, authenticationv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	r := ring()
	r.Spec.Resources = []v1alpha1.Resource{{GroupResource: secrets.GroupResource}}
	r.Status.LabelledResources = []v1alpha1.GroupResource{secrets.GroupResource}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(r).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o := o.(type) {
			case *v1alpha1.ClusterRing:
				return refusal
			case *authenticationv1.SelfSubjectReview:
				o.Status.UserInfo.Username = "sharder"
				return nil
			default:
				return c.Create(ctx, o, opts...)
			}
		},
	}).Build()
	return &policy.Controller{
		Client: c, Reports: &sharderring.Reports{}, Dialect: sharderring.Dialect{Prefix: v1alpha1.DefaultPrefix}, Namespace: "sharder-system", Mode: policy.ByPolicy, SyncPeriod: time.Minute,
		Resources: &policy.Resources{Reader: c, Discovery: served{}, Clock: time.Now},
	}
}
