package nodelock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/test/controlplane"
)

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	return c
}

func TestOneContenderWorksAtATime(t *testing.T) {
	const lockers, goroutines, nodes, locksEach = 3, 6, 4, 8
	c := newClient(t)
	ns := controlplane.Namespace(t, c)
	var atWork [nodes]atomic.Int32
	var worked atomic.Int32
	// contend takes locks of random nodes until it has reached its number.
	contend := func(l *nodelock.Locker, identity string) {
		for had := 0; had < locksEach && !t.Failed(); {
			i := rand.IntN(nodes)
			name := fmt.Sprintf("node-%d", i)
			err := l.Do(t.Context(), name, func(ctx context.Context) error {
				defer atWork[i].Add(-1)
				assert.EqualValues(t, 1, atWork[i].Add(1), "workers at %s", name)
				var held coordinationv1.Lease
				if assert.NoError(t, c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, &held)) {
					assert.Equal(t, identity, *held.Spec.HolderIdentity)
				}
				worked.Add(1)
				return nil
			})
			if errors.Is(err, nodelock.ErrHeld) {
				<-time.After(time.Millisecond) // to yield the CPU
				continue
			}
			if !assert.NoError(t, err) {
				return
			}
			had++
		}
	}
	var wg sync.WaitGroup
	for i := range lockers {
		identity := fmt.Sprintf("processor-%d", i)
		l := nodelock.New(c, ns, identity)
		for range goroutines {
			wg.Go(func() { contend(l, identity) })
		}
	}
	wg.Wait()
	assert.EqualValues(t, lockers*goroutines*locksEach, worked.Load())
	var left coordinationv1.LeaseList
	require.NoError(t, c.List(t.Context(), &left, client.InNamespace(ns)))
	assert.Empty(t, left.Items)
}

// takenBy replaces the node's Lease by one with another holder, as if this process had been
// suspended for long.
func takenBy(ctx context.Context, t *testing.T, c client.Client, ns, holder string) {
	t.Helper()
	assert.NoError(t, c.Delete(ctx, stored(t, c, ns)))
	other := lease(ns, holder, time.Now())
	other.UID = ""
	assert.NoError(t, c.Create(ctx, other))
}

func TestReleaseKeepsLeaseRecreatedByAnother(t *testing.T) {
	c := newClient(t)
	ns := controlplane.Namespace(t, c)
	require.NoError(t, nodelock.New(c, ns, "me").Do(t.Context(), node, func(ctx context.Context) error {
		takenBy(ctx, t, c, ns, "other")
		return nil
	}))
	if left := stored(t, c, ns); assert.NotNil(t, left) {
		assert.Equal(t, "other", *left.Spec.HolderIdentity)
	}
}

func TestReleaseKeepsLeaseTakenByAnother(t *testing.T) {
	c := newClient(t)
	ns := controlplane.Namespace(t, c)
	require.NoError(t, nodelock.New(c, ns, "me").Do(t.Context(), node, func(ctx context.Context) error {
		l := stored(t, c, ns)
		l.Spec.HolderIdentity = new("other")
		return c.Update(ctx, l)
	}))
	if left := stored(t, c, ns); assert.NotNil(t, left) {
		assert.Equal(t, "other", *left.Spec.HolderIdentity)
	}
}

func TestReleaseKeepsLeaseRecreatedAtTheLastMoment(t *testing.T) {
	c := newClient(t)
	ns := controlplane.Namespace(t, c)
	// Another process renews our Lease first, so that the release reads it again; by then it has
	// another holder.
	renewed := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Times: 1}, First: func(ctx context.Context) {
		l := stored(t, c, ns)
		l.Annotations = map[string]string{"touched": "yes"}
		assert.NoError(t, c.Update(ctx, l))
	}}
	replaced := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Skip: 1, Times: 1}, First: func(ctx context.Context) {
		takenBy(ctx, t, c, ns, "other")
	}}
	err := nodelock.New(faults.Client(c, renewed, replaced), ns, "me").Do(t.Context(), node, idle)
	assert.Equal(t, 1, replaced.Hits())
	require.ErrorContains(t, err, "releasing the lock", "two strange writes in a row are worth telling")
	if left := stored(t, c, ns); assert.NotNil(t, left) {
		assert.Equal(t, "other", *left.Spec.HolderIdentity)
	}
}

func TestLostResponsesOfRealAPIServerLeaveNoLock(t *testing.T) {
	c := newClient(t)
	for _, verb := range []faults.Verb{faults.Create, faults.Delete} {
		t.Run(string(verb), func(t *testing.T) {
			ns := controlplane.Namespace(t, c)
			lost := &faults.LostAnswer{Calls: faults.Calls{Verb: verb, Times: 1}}
			l := nodelock.New(faults.Client(c, lost), ns, "me")
			require.ErrorContains(t, l.Do(t.Context(), node, idle), "loss of a response")
			require.NoError(t, l.Do(t.Context(), node, idle), "the next attempt gets it")
			assert.Nil(t, stored(t, c, ns))
		})
	}
}
