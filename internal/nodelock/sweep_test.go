package nodelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
)

// sweep runs a sweeper for a few rounds.
func sweep(t *testing.T, c client.Client, isWanted func(context.Context, string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	nodelock.New(c, namespace, "sweeper").Sweep(ctx, isWanted)
}

func never(context.Context, string) bool  { return false }
func always(context.Context, string) bool { return true }

func TestSweepRemovesOrphanedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now())))
		elsewhere := lease("elsewhere", "dead", time.Now())
		require.NoError(t, c.Create(t.Context(), elsewhere))
		sweep(t, faults.Client(c), never)
		assert.Nil(t, stored(t, c, namespace))
		assert.NotNil(t, stored(t, c, "elsewhere"), "locks in other namespaces stay")
	})
}

func TestSweepKeepsWantedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now())))
		sweep(t, c, always)
		assert.NotNil(t, stored(t, c, namespace))
	})
}

func TestSweepKeepsHeldLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- nodelock.New(c, namespace, "holder").Do(ctx, node, work(time.Hour)) }()
		synctest.Wait()
		before := stored(t, c, namespace)
		sweep(t, c, never)
		if after := stored(t, c, namespace); assert.NotNil(t, after) {
			assert.Equal(t, before.Spec.AcquireTime, after.Spec.AcquireTime, "it was never taken away")
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestSweepKeepsLockTakenConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		require.NoError(t, c.Create(t.Context(), lease(namespace, "dead", time.Now())))
		taken := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Times: 1}, First: func(ctx context.Context) {
			l := stored(t, c, namespace)
			l.Spec.HolderIdentity = new("alive")
			assert.NoError(t, c.Update(ctx, l))
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second) // two rounds
		defer cancel()
		nodelock.New(faults.Client(c, taken), namespace, "sweeper").Sweep(ctx, never)
		assert.Equal(t, 1, taken.Hits())
		assert.Equal(t, "alive", *stored(t, c, namespace).Spec.HolderIdentity)
	})
}

func TestSweepContinuesAfterOutageAndLostResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		for _, name := range []string{"node-1", "node-2", "node-3"} {
			l := lease(namespace, "dead", time.Now())
			l.Name = name
			require.NoError(t, c.Create(t.Context(), l))
		}
		down := &faults.Outage{Calls: faults.Calls{Verb: faults.List, Times: 1}}
		refused := &faults.Outage{Calls: faults.Calls{Verb: faults.Delete, Name: "node-1", Times: 1}}
		lost := &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Delete, Name: "node-2", Times: 1}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		nodelock.New(faults.Client(c, down, refused, lost), namespace, "sweeper").Sweep(ctx, never)
		for _, fault := range []interface{ Hits() int }{down, refused, lost} {
			assert.Equal(t, 1, fault.Hits())
		}
		assert.Nil(t, stored(t, c, namespace))
	})
}
