package ring

import (
	"math/rand/v2"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue returns a workqueue. In a shuffled one any of the items that wait is the next, for replicas that are on no ring and all go
// for the same: in an order of their own they get less into each other's way. Without a name it has no metrics.
func NewQueue[T comparable](name string, limiter workqueue.TypedRateLimiter[T], isShuffled bool) workqueue.TypedRateLimitingInterface[T] {
	order := workqueue.DefaultQueue[T]()
	if isShuffled {
		order = &shuffled[T]{}
	}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: order})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: queue}),
	})
}

// shuffled are items in no order. The workqueue that has them calls it under a lock.
type shuffled[T comparable] struct{ items []T }

func (s *shuffled[T]) Touch(T)     {}
func (s *shuffled[T]) Push(item T) { s.items = append(s.items, item) }
func (s *shuffled[T]) Len() int    { return len(s.items) }

// Pop takes any item.
func (s *shuffled[T]) Pop() T {
	last := len(s.items) - 1
	i := rand.IntN(len(s.items)) //nolint:gosec // chance is enough
	item := s.items[i]
	s.items[i] = s.items[last]
	clear(s.items[last:])
	s.items = s.items[:last]
	return item
}
