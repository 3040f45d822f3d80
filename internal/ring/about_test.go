package ring_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/ring"
)

func TestInitialAnnotationsCostNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := c.joinWith(t, "a", map[string]string{"version": "1"})
		created := c.get("a")
		require.Equal(t, map[string]string{"version": "1"}, created.Annotations)
		assert.Equal(t, 1, a.count(), "one write")
		a.Annotate("question", "7")
		pass(time.Second)
		assert.Equal(t, map[string]string{"version": "1", "question": "7"}, c.get("a").Annotations)
		assert.Equal(t, 2, a.count())
		a.leave()
		assert.Equal(t, "1", c.get("a").Annotations["version"], "a released Lease still has it")
	})
}

// It starts with the same name and other settings, whatever Lease its predecessor left.
func TestRestartedMemberUpdatesItsAnnotations(t *testing.T) {
	for name, end := range map[string]func(*replica){"released": func(r *replica) { r.leave() }, "killed": (*replica).die} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster()
				a := c.joinWith(t, "a", map[string]string{"version": "1", "old": "x"})
				pass(time.Second)
				end(a)
				again := c.joinWith(t, "a", map[string]string{"version": "2"})
				pass(time.Second)
				assert.Equal(t, map[string]string{"version": "2"}, c.get("a").Annotations)
				pass(20 * time.Second)
				assert.LessOrEqual(t, again.count(), 7, "one to join, one that finds out who wrote last, and a renewal each five seconds")
			})
		})
	}
}

func TestTakenLeaseKeepsAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.joinWith(t, "a", map[string]string{"version": "1"})
		b := c.joinWith(t, "b", map[string]string{"version": "2"})
		pass(time.Second)
		b.die()
		for *c.get("b").Spec.HolderIdentity != "a" {
			pass(time.Second)
		}
		assert.Equal(t, map[string]string{"version": "2"}, c.get("b").Annotations)
		b = c.joinWith(t, "b", map[string]string{"version": "3"})
		pass(40 * time.Second)
		require.Equal(t, "b", *c.get("b").Spec.HolderIdentity, "it has its Lease back")
		assert.Equal(t, map[string]string{"version": "3"}, c.get("b").Annotations)
		assert.True(t, b.Joined())
	})
}

func TestRecreatedLeaseHasAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		about := map[string]string{"version": "1"}
		a := c.joinWith(t, "a", about)
		about["version"] = "the caller's"
		uid, none := c.get("a").UID, &metav1.Preconditions{}
		none.UID, none.ResourceVersion = &uid, new(c.get("a").ResourceVersion)
		require.NoError(t, (&link{cluster: c}).Delete(context.Background(), "a", metav1.DeleteOptions{Preconditions: none}))
		pass(6 * time.Second)
		again := c.get("a")
		require.NotEqual(t, uid, again.UID)
		assert.Equal(t, map[string]string{"version": "1"}, again.Annotations)
		a.SetServing(false)
		pass(time.Second)
		assert.Equal(t, map[string]string{"version": "1", ring.StandbyKey(label): "true"}, c.get("a").Annotations)
	})
}
