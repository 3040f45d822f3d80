package ring_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/util/workqueue"

	"nodekeeper.dev/internal/ring"
)

func TestQueueGivesEachItemOnceInOrderOrShuffled(t *testing.T) {
	t.Parallel()
	for name, isShuffled := range map[string]bool{"in order": false, "shuffled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const count = 100
			queue := ring.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[int](), isShuffled)
			defer queue.ShutDown()
			var want, got []int
			for i := range count {
				want = append(want, i)
				queue.Add(i)
				queue.Add(i) // which waits already
			}
			for queue.Len() > 0 {
				i, _ := queue.Get()
				got = append(got, i)
				queue.Done(i)
			}
			assert.Equal(t, isShuffled, !slices.Equal(want, got), "there are 100! orders")
			assert.ElementsMatch(t, want, got)
		})
	}
}
