package service

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// decoded is a ConfigMap none of whose strings is that of another.
func decoded() *corev1.ConfigMap {
	one := func() map[string]string { return map[string]string{strings.Clone("example.com/rack"): "r1"} }
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: one(), Annotations: one(), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Data:       one(),
	}
}

func TestCompactedObjectsSayTheSameAndShareTheirKeys(t *testing.T) {
	t.Parallel()
	renamed := func(obj any) (any, error) { obj.(*corev1.ConfigMap).Name = "node-2"; return obj, nil }
	o := compacted(cache.Options{
		DefaultTransform: renamed,
		ByObject:         map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {}, &corev1.Node{}: {Transform: renamed}},
	})
	require.Len(t, o.ByObject, 2)
	transforms := []toolscache.TransformFunc{o.DefaultTransform}
	for _, by := range o.ByObject {
		transforms = append(transforms, by.Transform)
	}
	keys := map[*byte]bool{}
	for _, transform := range transforms {
		obj, err := transform(decoded())
		require.NoError(t, err)
		cm := obj.(*corev1.ConfigMap)
		want := decoded()
		want.Name, want.ManagedFields = "node-2", nil
		assert.Equal(t, want, cm)
		for _, m := range []map[string]string{cm.Labels, cm.Annotations, cm.Data} {
			for key := range m {
				keys[unsafe.StringData(key)] = true
			}
		}
	}
	assert.Len(t, keys, 1, "places in memory of one key")
}

func TestWhatIsNoObjectIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	gone := toolscache.DeletedFinalStateUnknown{Key: "a/b"}
	obj, err := compacting(nil)(gone)
	require.NoError(t, err)
	assert.Equal(t, gone, obj)
}
