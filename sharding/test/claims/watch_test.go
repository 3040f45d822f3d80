package claims

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"nodekeeper.dev/test/controlplane"
)

// TestInitialListIsStreamed covers R24 and the watch of R22: a metadata watch sends the existing
// objects one at a time, then a bookmark that marks the end of the list, and then changes. Its
// selector excludes objects of live shards.
func TestInitialListIsStreamed(t *testing.T) {
	t.Parallel()
	controlplane.NeedRelease(t, api.Kubeconfig, 34, "WatchList is on by default")
	c := adminClient(t)
	namespace := controlplane.Namespace(t, c)
	for i := range 40 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("s-%d", i)}}
		if i%4 > 0 { // the others have no assignment
			secret.Labels = map[string]string{"shard": fmt.Sprintf("web-%d", i%4)}
		}
		require.NoError(t, c.Create(t.Context(), secret))
	}
	m, err := metadata.NewForConfig(api.Config)
	require.NoError(t, err)
	w, err := m.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		LabelSelector: "shard notin (web-1,web-2)",
	})
	require.NoError(t, err)
	defer w.Stop()
	seen := map[string]int{}
	for {
		e := <-w.ResultChan()
		n, ok := e.Object.(*metav1.PartialObjectMetadata)
		require.True(t, ok, "%v", e.Object)
		if e.Type == watch.Bookmark && n.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			break
		}
		require.Equal(t, watch.Added, e.Type)
		seen[n.Labels["shard"]]++
	}
	assert.Equal(t, map[string]int{"": 10, "web-3": 10}, seen)
	orphan := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s-1"}}
	orphan.Labels = map[string]string{"shard": "web-gone"}
	require.NoError(t, c.Update(t.Context(), orphan))
	e := <-w.ResultChan()
	for e.Type == watch.Bookmark { // one arrives each minute
		e = <-w.ResultChan()
	}
	assert.Equal(t, watch.Added, e.Type, "what begins to match appears")
}
