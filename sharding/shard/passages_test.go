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

// TestGateIsClosedOnlyWhenNobodyIsInside: controllers of one kind share it.
func TestGateIsClosedOnlyWhenNobodyIsInside(t *testing.T) {
	t.Parallel()
	g, one, two := &gate{}, &work{}, &work{}
	require.True(t, g.enter(key, one))
	require.True(t, g.enter(key, two), "another controller")
	assert.False(t, g.close(key))
	g.leave(key, one)
	assert.False(t, g.close(key), "one is still at work")
	assert.True(t, g.isAtWork())
	assert.True(t, g.isBusy(key))
	g.leave(key, two)
	require.True(t, g.close(key))
	assert.False(t, g.enter(key, one))
	assert.False(t, g.close(key), "another controller gives it away")
	assert.True(t, g.enter(client.ObjectKey{Name: "other"}, one))
	g.open(key)
	assert.True(t, g.enter(key, one))
}

// TestGateKeepsWhatWasGivenAwayFromStaleCaches: what a cache shows may be older than the acknowledgement.
func TestGateKeepsWhatWasGivenAwayFromStaleCaches(t *testing.T) {
	t.Parallel()
	g := &gate{}
	g.know(key, "uid", 1)
	g.give(key, "10")
	assert.True(t, g.isGiven(key, "10"), "the answer may be lost")
	assert.False(t, g.isOut(key, "10"), "so it is given again")
	assert.EqualValues(t, "uid", g.known(key))
	g.gave(key)
	assert.True(t, g.isGiven(key, "9"))
	assert.True(t, g.isGiven(key, "10"))
	assert.True(t, g.isOut(key, "10"))
	assert.False(t, g.isGiven(key, "11"), "it has come back")
	assert.Empty(t, g.known(key))
	g.know(key, "uid", 1)
	assert.False(t, g.isGiven(key, "10"))
}

// TestGateForgetsWhatTheCacheDoesNotShow, so that it does not grow. With two caches, the other one may still show it.
func TestGateForgetsWhatTheCacheDoesNotShow(t *testing.T) {
	t.Parallel()
	one := &gate{}
	one.see(reflect.TypeFor[*corev1.Secret]())
	one.give(key, "10")
	one.gave(key)
	one.forget(key, 1)
	assert.False(t, one.isGiven(key, "10"))
	assert.Empty(t, one.objects)

	two := &gate{}
	two.see(reflect.TypeFor[*corev1.Secret]())
	two.see(reflect.TypeFor[*metav1.PartialObjectMetadata]())
	two.give(key, "10")
	two.gave(key)
	two.forget(key, 1)
	assert.True(t, two.isGiven(key, "10"))
}

// TestGateIsEmptyAgain: entering and leaving leaves nothing behind.
func TestGateIsEmptyAgain(t *testing.T) {
	t.Parallel()
	g := &gate{}
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

// TestGateWaitsForChildrenOncePerNote: each move has its own.
func TestGateWaitsForChildrenOncePerNote(t *testing.T) {
	t.Parallel()
	g, now := &gate{}, time.Now()
	assert.Equal(t, now, g.waited(key, "a", now))
	assert.Equal(t, now, g.waited(key, "a", now.Add(time.Second)), "since then")
	g.arrived(key, "a")
	assert.Zero(t, g.waited(key, "a", now.Add(time.Minute)))
	assert.Equal(t, now.Add(time.Hour), g.waited(key, "b", now.Add(time.Hour)))
}
