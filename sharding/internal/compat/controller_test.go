package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/compat"
)

const name = "web"

func controllerRing() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"resources": []any{map[string]any{"group": "apps", "resource": "deployments"}},
	}}}
	u.SetGroupVersionKind(compat.Kind)
	u.SetName(name)
	u.SetUID("1")
	return u
}

func mirrorOf(u *unstructured.Unstructured) *v1alpha1.ClusterRing {
	return &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: "2", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(u, compat.Kind)},
	}}
}

// build returns a fake API server with the given objects and interceptors.
func build(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(s))
	s.AddKnownTypeWithName(compat.Kind, &unstructured.Unstructured{})
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(controllerRing()).WithInterceptorFuncs(funcs).Build()
}

// reconcileOnce runs a reconcile with separate clients for cached and live reads.
func reconcileOnce(t *testing.T, cache, live client.Client) error {
	t.Helper()
	c := &compat.Controller{Client: split{live, cache}, Live: live, Recorder: &events.FakeRecorder{}, SyncPeriod: time.Minute}
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	return err
}

// split is a client that reads from a cache and writes to the API server.
type split struct {
	client.Client

	cache client.Reader
}

func (s split) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return s.cache.Get(ctx, key, o, opts...)
}

func has(t *testing.T, c client.Client) bool {
	t.Helper()
	err := c.Get(t.Context(), types.NamespacedName{Name: name}, &v1alpha1.ClusterRing{})
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil
}

// A ControllerRing that is missing from the cache may exist.
func TestCacheAloneDeletesNoMirror(t *testing.T) {
	t.Parallel()
	u := controllerRing()
	cache, live := build(t, interceptor.Funcs{}), build(t, interceptor.Funcs{}, u, mirrorOf(u))
	require.NoError(t, reconcileOnce(t, cache, live))
	assert.True(t, has(t, live))
	require.NoError(t, live.Delete(t.Context(), u))
	require.NoError(t, reconcileOnce(t, cache, live))
	assert.False(t, has(t, live))
}

// Such a ring merely has the name of a deleted ControllerRing.
func TestForeignRingIsNeverDeleted(t *testing.T) {
	t.Parallel()
	other := mirrorOf(controllerRing())
	other.OwnerReferences[0].Kind = "Website"
	live := build(t, interceptor.Funcs{}, other)
	require.NoError(t, reconcileOnce(t, live, live))
	assert.True(t, has(t, live))
}

// The create was stored, but the cache does not contain the mirror yet.
func TestLostAnswerLeavesOneMirror(t *testing.T) {
	t.Parallel()
	u := controllerRing()
	cache := build(t, interceptor.Funcs{}, u)
	isLost := true
	live := build(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		err := c.Create(ctx, o, opts...)
		if err == nil && isLost {
			return apierrors.NewTimeoutError("lost", 1)
		}
		return err
	}}, u)
	require.Error(t, reconcileOnce(t, cache, live))
	isLost = false
	require.NoError(t, reconcileOnce(t, cache, live), "it exists already, and the cache will show it")
	assert.True(t, has(t, live))
}

// The objects of an adopted mirror keep their labels.
func TestMirrorOfAnEarlierControllerRingIsAdopted(t *testing.T) {
	t.Parallel()
	earlier, u := controllerRing(), controllerRing()
	earlier.SetUID("0")
	live := build(t, interceptor.Funcs{}, u, mirrorOf(earlier))
	require.NoError(t, reconcileOnce(t, live, live))
	found := &v1alpha1.ClusterRing{}
	require.NoError(t, live.Get(t.Context(), types.NamespacedName{Name: name}, found))
	assert.Equal(t, types.UID("1"), metav1.GetControllerOf(found).UID)
	assert.Equal(t, "*", found.Spec.Shards.Namespace)
	assert.Equal(t, v1alpha1.GroupResource{Group: "apps", Resource: "deployments"}, found.Spec.Resources[0].GroupResource)
}
