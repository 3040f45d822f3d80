package shard

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var key = client.ObjectKey{Namespace: "default", Name: "s1"}

// A passage closes only when no controller of the kind is reconciling the object.
func TestPassageClosesOnlyWithoutReconciles(t *testing.T) {
	t.Parallel()
	g, one, two := &passages{}, &work{}, &work{}
	require.True(t, g.enter(key, one))
	require.True(t, g.enter(key, two), "another controller")
	assert.False(t, g.close(key))
	g.leave(key, one)
	assert.False(t, g.close(key), "one reconcile is still in progress")
	assert.True(t, g.isAtWork())
	assert.True(t, g.isBusy(key))
	g.leave(key, two)
	require.True(t, g.close(key))
	assert.False(t, g.enter(key, one))
	assert.False(t, g.close(key), "another controller is releasing it")
	assert.True(t, g.enter(client.ObjectKey{Name: "other"}, one))
	g.open(key)
	assert.True(t, g.enter(key, one))
}

// A cached version may be older than the acknowledgement.
func TestReleasedObjectStaysReleasedInStaleCaches(t *testing.T) {
	t.Parallel()
	g := &passages{}
	g.addWorker(key, "uid", 1)
	g.releasing(key, "10")
	assert.True(t, g.mayBeReleased(key, "10"), "the response may have been lost")
	assert.False(t, g.isReleased(key, "10"), "so it is released again")
	assert.EqualValues(t, "uid", g.uid(key))
	g.confirmRelease(key)
	assert.True(t, g.mayBeReleased(key, "9"))
	assert.True(t, g.mayBeReleased(key, "10"))
	assert.True(t, g.isReleased(key, "10"))
	assert.False(t, g.mayBeReleased(key, "11"), "the object has returned")
	assert.Empty(t, g.uid(key))
	g.addWorker(key, "uid", 1)
	assert.False(t, g.mayBeReleased(key, "10"))
}

// Forgetting bounds the memory. With two caches, the other one may still hold the released version.
func TestPassagesForgetObjectsMissingFromTheCache(t *testing.T) {
	t.Parallel()
	one := &passages{}
	one.addView(reflect.TypeFor[*corev1.Secret]())
	one.releasing(key, "10")
	one.confirmRelease(key)
	one.forget(key, 1)
	assert.False(t, one.mayBeReleased(key, "10"))
	assert.Empty(t, one.objects)

	two := &passages{}
	two.addView(reflect.TypeFor[*corev1.Secret]())
	two.addView(reflect.TypeFor[*metav1.PartialObjectMetadata]())
	two.releasing(key, "10")
	two.confirmRelease(key)
	two.forget(key, 1)
	assert.True(t, two.mayBeReleased(key, "10"))
}

// Entering and leaving leaves nothing behind.
func TestPassagesBecomeEmptyAgain(t *testing.T) {
	t.Parallel()
	g := &passages{}
	for range 3 {
		w := &work{}
		require.True(t, g.enter(key, w))
		g.leave(key, w)
		require.True(t, g.close(key))
		g.open(key)
	}
	assert.Empty(t, g.objects)
	assert.False(t, g.isAtWork())
}

// Each move has its own annotation.
func TestPassageWaitsForChildrenOncePerAnnotation(t *testing.T) {
	t.Parallel()
	g, now := &passages{}, time.Now()
	assert.Equal(t, now, g.waitingSince(key, "a", now))
	assert.Equal(t, now, g.waitingSince(key, "a", now.Add(time.Second)), "the start of the wait is kept")
	g.childrenArrived(key, "a")
	assert.Zero(t, g.waitingSince(key, "a", now.Add(time.Minute)))
	assert.Equal(t, now.Add(time.Hour), g.waitingSince(key, "b", now.Add(time.Hour)))
}
