package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const controllerPrefix = "system:serviceaccount:kube-system:"

// TestNamespacesCanBeRemoved acts as the namespace controller, which does not run here.
func TestNamespacesCanBeRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	controller := actingAs(t, c, controllerPrefix+"namespace-controller")
	for _, name := range []string{transactions, metadata} {
		install(t, c)
		require.NoError(t, c.Create(t.Context(), aTransaction("node")))
		require.NoError(t, c.Create(t.Context(), aRecord("node")))
		require.NoError(t, c.Create(t.Context(), retentionLease()))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, c.Delete(t.Context(), namespace))
		for _, obj := range []client.Object{&corev1.ConfigMap{}, &coordinationv1.Lease{}} {
			require.NoError(t, controller.DeleteAllOf(t.Context(), obj, client.InNamespace(name)))
		}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
		namespace.Spec.Finalizers = nil
		require.NoError(t, controller.SubResource("finalize").Update(t.Context(), namespace))
		assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)))
		for _, left := range []client.Object{aTransaction("node"), aRecord("node"), retentionLease()} {
			require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), left)))
		}
	}
	install(t, c) // for later tests in this cluster
}

// TestGarbageCollectorFinishesADeletion checks a foreground deletion, which waits for owned
// objects.
func TestGarbageCollectorFinishesADeletion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	collector := actingAs(t, c, controllerPrefix+"generic-garbage-collector")
	there := add(t, c, aRecord("collected-"+rand.String(5)))
	require.NoError(t, c.Delete(t.Context(), there.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	none := merge(`{"metadata":{"finalizers":null}}`)
	refused(t, editor(t, c).Patch(t.Context(), there.DeepCopy(), none), needed)
	require.NoError(t, collector.Patch(t.Context(), there.DeepCopy(), none))
	assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(there), there)))
	owned := add(t, c, aRecord("owned-"+rand.String(5)))
	assert.NoError(t, collector.Delete(t.Context(), owned.DeepCopy()))
}
