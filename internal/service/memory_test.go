package service

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
)

// decoded is a ConfigMap that shares no strings with others.
func decoded() *corev1.ConfigMap {
	one := func() map[string]string { return map[string]string{strings.Clone("example.com/rack"): "r1"} }
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: one(), Annotations: one(), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Data:       one(),
	}
}

func TestCompactedObjectsAreEqualAndShareKeys(t *testing.T) {
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

func TestCachedRecordsShareListsOfKeys(t *testing.T) {
	t.Parallel()
	const annotation = "nodekeeper.dev/machine-labels"
	lists := map[*byte]bool{}
	for range 2 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: strings.Clone("pool,zone")}}}
		obj, err := compacting(nil)(cm)
		require.NoError(t, err)
		lists[unsafe.StringData(obj.(*corev1.ConfigMap).Annotations[annotation])] = true
	}
	assert.Len(t, lists, 1, "places in memory of one list")
}

func TestCompactingSkipsOtherValues(t *testing.T) {
	t.Parallel()
	gone := toolscache.DeletedFinalStateUnknown{Key: "a/b"}
	obj, err := compacting(nil)(gone)
	require.NoError(t, err)
	assert.Equal(t, gone, obj)
}

// client-go transforms some objects twice.
func TestNodeIsViewedOnce(t *testing.T) {
	t.Parallel()
	view, err := nodeview.Parse(agents.Default, labels.DefaultIgnored, "")
	require.NoError(t, err)
	meta := metav1.ObjectMeta{
		Name: "node-1", Labels: map[string]string{"zone": "a", "team": "blue"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:zone":{}}}}`)},
			{Manager: "kubectl-label", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}}}}`)},
		},
	}
	for _, obj := range []any{&metav1.PartialObjectMetadata{ObjectMeta: *meta.DeepCopy()}, &corev1.Node{ObjectMeta: *meta.DeepCopy()}} {
		for range 2 {
			obj, err = compacting(ViewNodes(view))(obj)
			require.NoError(t, err)
			n, ok := obj.(*nodeview.Node)
			require.True(t, ok)
			assert.Equal(t, "zone", string(n.Machine))
			assert.Empty(t, n.Unclear)
			assert.Empty(t, n.Managed)
			key, err := toolscache.MetaNamespaceKeyFunc(n)
			require.NoError(t, err)
			assert.Equal(t, "node-1", key, "an informer can store it")
		}
	}
}

func TestCachedNodeHasGatedSince(t *testing.T) {
	t.Parallel()
	created, closed := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second)), metav1.NewTime(time.Now().Truncate(time.Second))
	marker := []metav1.ManagedFieldsEntry{
		{Manager: "later", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`), Time: new(metav1.NewTime(closed.Add(time.Minute)))},
		{Manager: "first", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:labels_restored":{}}}}`), Time: &closed},
		{Manager: "other", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:rack":{}}}}`), Time: &created},
	}
	for name, tc := range map[string]struct {
		marker string
		fields []metav1.ManagedFieldsEntry
		want   time.Time
	}{
		"gated":          {labels.Pending, marker, closed.Time},
		"unknown setter": {labels.Pending, marker[2:], created.Time},
		"not gated":      {"7", marker, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: "node-1", CreationTimestamp: created, Labels: map[string]string{labels.Marker: tc.marker}, ManagedFields: tc.fields,
			}}
			seen, err := ViewNodes(nodeview.View{})(n)
			require.NoError(t, err)
			since := seen.(*nodeview.Node).GatedSince
			assert.True(t, tc.want.Equal(since), since)
		})
	}
}
