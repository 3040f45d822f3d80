package assignment

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

func trackerForTest() *tracker {
	return &tracker{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())}
}

func nth(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "n", Name: strconv.Itoa(i)}
}

// Objects may wait more than once, and some waiting objects need no move any more. All others move
// eventually, and never more at a time than the limit allows.
func TestEveryWaitingObjectMoves(t *testing.T) {
	t.Parallel()
	const limit, objects = 3, 40
	var m moves
	of := trackerForTest()
	moved := map[types.NamespacedName]bool{}
	for i := range objects {
		of.queue.Add(nth(i))
	}
	for of.queue.Len() > 0 {
		key, _ := of.queue.Get()
		of.queue.Done(key)
		needsNone := key == nth(5) || key == nth(6) || moved[key]
		switch {
		case m.isActive(of, key): // it was released
			m.end(of, key)
			moved[key] = true
		case needsNone:
		case m.reserve(of, key, limit):
			assert.LessOrEqual(t, m.count(), limit)
			of.queue.Add(key) // the shard releases it
		default:
			m.await(of, key)
			m.await(of, nth(5))
		}
		m.next(limit)
	}
	assert.Len(t, moved, objects-2)
	assert.Zero(t, m.count())
	assert.Empty(t, m.waiting)
	assert.Empty(t, m.queued)
}

func TestMovesOfATrackerThatIsGoneAreForgotten(t *testing.T) {
	t.Parallel()
	var m moves
	gone, of := trackerForTest(), trackerForTest()
	assert.True(t, m.reserve(gone, nth(1), 1))
	assert.False(t, m.reserve(gone, nth(2), 1))
	assert.True(t, m.isFull(of, nth(3), 1))
	assert.False(t, m.isFull(gone, nth(1), 1), "it is already moving")
	assert.False(t, m.reserve(of, nth(3), 1))
	m.forget(gone)
	assert.Zero(t, m.count())
	m.next(1)
	assert.Zero(t, gone.queue.Len())
	assert.Equal(t, 1, of.queue.Len())
}
