package nodelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
)

// legacy is a lock as created by versions before the label.
func legacy(holder string) *coordinationv1.Lease {
	l := lease(namespace, holder, time.Now())
	l.Labels = nil
	return l
}

// foreign are Leases that are not locks, by the reason.
func foreign() map[string]*coordinationv1.Lease {
	all := map[string]*coordinationv1.Lease{}
	for name, change := range map[string]func(l *coordinationv1.Lease){
		"another duration":   func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(15)) },
		"no duration":        func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil },
		"another label":      func(l *coordinationv1.Lease) { l.Labels = map[string]string{"app": "web"} },
		"another value":      func(l *coordinationv1.Lease) { l.Labels = map[string]string{nodelock.Label: "web"} },
		"an annotation":      func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"note": "mine"} },
		"an owner":           func(l *coordinationv1.Lease) { l.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: node}} },
		"a finalizer":        func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/keep"} },
		"nothing in the end": func(l *coordinationv1.Lease) { l.Spec = coordinationv1.LeaseSpec{} },
	} {
		l := legacy("somebody")
		change(l)
		all[name] = l
	}
	return all
}

func TestLockHasTheLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		require.NoError(t, nodelock.New(c, namespace, "me").Do(t.Context(), node, func(context.Context) error {
			assert.Equal(t, map[string]string{nodelock.Label: nodelock.LabelValue}, stored(t, c, namespace).Labels)
			return nil
		}))
	})
}

func TestLockOfOlderVersionIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		require.NoError(t, c.Create(t.Context(), legacy("old")))
		l := nodelock.New(c, namespace, "me")
		require.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld)
		assert.Equal(t, nodelock.LeaseDuration, l.HeldFor(node))
		time.Sleep(l.HeldFor(node))
		require.NoError(t, l.Do(t.Context(), node, func(context.Context) error {
			taken := stored(t, c, namespace)
			assert.Equal(t, "me", *taken.Spec.HolderIdentity)
			assert.Equal(t, nodelock.LabelValue, taken.Labels[nodelock.Label])
			return nil
		}))
		assert.Nil(t, stored(t, c, namespace))
	})
}

// Foreign Leases neither block their nodes nor are they written, deleted or counted.
func TestForeignLeaseIsNeverTouched(t *testing.T) {
	for name, theirs := range foreign() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFake()
				require.NoError(t, c.Create(t.Context(), theirs.DeepCopy()))
				before := stored(t, c, namespace)
				log := &faults.Log{}
				l := nodelock.New(faults.Client(c, log), namespace, "me")
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				go l.Sweep(ctx, never)
				for range 3 {
					worked := false
					require.NoError(t, l.Do(t.Context(), node, func(context.Context) error {
						worked = true
						assert.ErrorIs(t, l.Do(t.Context(), node, idle), nodelock.ErrHeld, "one goroutine at a time still")
						return nil
					}))
					assert.True(t, worked)
					time.Sleep(time.Minute)
				}
				assert.Zero(t, l.HeldFor(node))
				<-ctx.Done()
				assert.Equal(t, before, stored(t, c, namespace))
				for _, entry := range log.Entries() {
					assert.False(t, entry.Err == nil && entry.Verb != faults.Get && entry.Verb != faults.List, "%v", entry)
				}
			})
		})
	}
}

// Its Lease is missing when it reads it, and has another holder when it creates it.
func TestFormerHolderDoesNotTakeNextLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		next := &faults.Race{Calls: faults.Calls{Verb: faults.Create, Skip: 1, Times: 1}, First: func(ctx context.Context) {
			assert.NoError(t, c.Create(ctx, lease(namespace, "next", time.Now())))
		}}
		time.AfterFunc(10500*time.Millisecond, func() { assert.NoError(t, c.Delete(t.Context(), stored(t, c, namespace))) })
		err := nodelock.New(faults.Client(c, next), namespace, "former").Do(t.Context(), node, work(time.Minute))
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1, next.Hits())
		assert.Equal(t, "next", *stored(t, c, namespace).Spec.HolderIdentity)
	})
}
