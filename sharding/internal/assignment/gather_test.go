package assignment

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// TestBatchesOfChildrenGather covers step 3 of the protocol: a batch that follows another one waits
// for more objects, but not for more than half of those that may be in hand-over.
func TestBatchesOfChildrenGather(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		every time.Duration // between two releases
		n     int           // of them
		next  time.Duration // until the batch may begin
		took  time.Duration
		size  int
	}{
		"one alone":                    {every: time.Hour, n: 1, next: 0, took: 0, size: 1},
		"a few":                        {every: 100 * time.Millisecond, n: 3, next: gatherTime, took: gatherTime, size: 3},
		"enough":                       {every: time.Millisecond, n: 20, next: gatherTime, took: 4 * time.Millisecond, size: 5},
		"enough from the beginning on": {every: 0, n: 20, next: gatherTime, took: 0, size: 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			ring := &v1alpha1.ClusterRing{}
			ring.Spec.Handover.MaxConcurrentMoves = 10
			c := newChildren(&assigner{view: &view{ring: ring}})
			release := func(i int) {
				c.mu.Lock()
				c.waiting[types.UID(strconv.Itoa(i))] = move{}
				c.mu.Unlock()
				c.wake.Send()
			}
			began := time.Now()
			release(0)
			var rest sync.WaitGroup
			rest.Go(func() {
				for i := 1; i < tc.n; i++ {
					time.Sleep(tc.every)
					release(i)
				}
			})
			if tc.every == 0 {
				synctest.Wait()
			}
			c.gather(t.Context(), began.Add(tc.next))
			assert.Equal(t, tc.took, time.Since(began), name)
			assert.Equal(t, tc.size, c.pending(), name)
			rest.Wait()
		})
	}
}
