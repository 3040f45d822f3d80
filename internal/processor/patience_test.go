package processor

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/txn"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	start := time.Unix(1, 0)
	deleted, added := []txn.Queued{{Transaction: txn.Transaction{Type: txn.Deleted}}}, []txn.Queued{{Transaction: txn.Transaction{Type: txn.Added}}}

	w := newPatience(5 * time.Second)
	assert.Equal(t, 5*time.Second, w.wait("a", deleted, start))
	assert.Equal(t, 3*time.Second, w.wait("a", deleted, start.Add(2*time.Second)), "it counts from the first")
	assert.Zero(t, w.wait("a", append(deleted, added...), start), "a restore waits for nothing")
	assert.Zero(t, w.wait("a", []txn.Queued{{Transaction: txn.Transaction{Type: txn.Updated, AtOnce: true}}}, start), "nor does what somebody waits for")
	assert.Zero(t, w.wait("a", deleted, start.Add(5*time.Second)))
	assert.Zero(t, w.wait("a", deleted, start.Add(6*time.Second)), "it does not wait again because it failed")
	w.forget("a")
	assert.Equal(t, 5*time.Second, w.wait("a", deleted, start.Add(7*time.Second)))

	old := []txn.Queued{{Transaction: txn.Transaction{Type: txn.Deleted, ObservedAt: start.Add(-4 * time.Second)}}}
	assert.Equal(t, time.Second, w.wait("old", old, start), "it has waited for a processor")
	old[0].ObservedAt = start.Add(time.Hour)
	assert.Equal(t, 5*time.Second, w.wait("by a clock that is ahead", old, start))

	assert.Zero(t, newPatience(0).wait("a", deleted, start))
}

func TestPatienceIsLongWhileManyWait(t *testing.T) {
	t.Parallel()
	start := time.Unix(1, 0)
	deleted := []txn.Queued{{Transaction: txn.Transaction{Type: txn.Deleted}}}
	w := newPatience(5 * time.Second)
	for i := range manyWaiting {
		assert.Equal(t, 5*time.Second, w.wait(strconv.Itoa(i), deleted, start))
	}
	assert.Equal(t, 15*time.Second, w.wait("one more", deleted, start))
	assert.Equal(t, 15*time.Second, w.wait("0", deleted, start.Add(20*time.Second)))
	assert.Equal(t, time.Second, w.wait("0", deleted, start.Add(44*time.Second)))
	for i := range manyWaiting {
		w.forget(strconv.Itoa(i))
	}
	assert.Zero(t, w.wait("one more", deleted, start.Add(5*time.Second)), "the others are done")
}
