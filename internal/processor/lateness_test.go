package processor_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/txn"
)

// notes are the annotations of a Lease, in the order of their writes.
type notes chan string

func (n notes) Annotate(key, value string) { n <- key + "=" + value }

// TestLateTransactionsArePublished by a processor that applies them, and no others: the age of a
// transaction is that at which its watcher saw the change.
func TestLateTransactionsArePublished(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	lease := make(notes, 10)
	c.process(t, setup{lease: lease})
	inTime, late := c.addNode(t, c.name("in-time"), set{"a": "1"}), c.addNode(t, c.name("late"), set{"a": "1"})
	c.put(t, seen(txn.Updated, inTime))
	c.waitApplied(t, inTime.Name)
	assert.Empty(t, lease)

	waited := seen(txn.Updated, late)
	waited.ObservedAt = waited.ObservedAt.Add(-settings.LateAfter)
	before := time.Now().Truncate(time.Second)
	c.put(t, waited)
	c.waitApplied(t, late.Name)
	require.Len(t, lease, 1)
	key, at, _ := strings.Cut(<-lease, "=")
	assert.Equal(t, settings.LateAnnotation, key)
	published, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	assert.False(t, published.Before(before), at)
}

// TestLatenessIsPublishedEveryTenSeconds: each costs a write of the Lease.
func TestLatenessIsPublishedEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := make(notes, 100)
		var l processor.Lateness
		for range 60 { // a minute
			l.Applied(lease, time.Now().Add(-settings.LateAfter), time.Now())
			l.Applied(lease, time.Now().Add(-settings.LateAfter+time.Millisecond), time.Now()) // not late
			time.Sleep(time.Second)
		}
		assert.Len(t, lease, 6)
		l.Applied(nil, time.Time{}, time.Now()) // without a Lease
	})
}
