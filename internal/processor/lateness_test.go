package processor_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/txn"
)

// notes are the annotations of a Lease, in the order of their writes.
type notes chan string

func (n notes) Annotate(key, value string) { n <- key + "=" + value }

// seenInTime returns an update that is not late, even if a test takes long to apply it.
func seenInTime(n *corev1.Node) txn.Transaction {
	t := seen(txn.Updated, n)
	t.ObservedAt = t.ObservedAt.Add(time.Minute)
	return t
}

// TestLateTransactionsArePublished by a processor that applies them, and no others: the age of a
// transaction is that at which its watcher saw the change.
func TestLateTransactionsArePublished(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	lease := make(notes, 10)
	c.process(t, setup{lease: lease})
	inTime, late := c.addNode(t, c.name("in-time"), set{"a": "1"}), c.addNode(t, c.name("late"), set{"a": "1"})
	c.put(t, seenInTime(inTime))
	c.waitApplied(t, inTime.Name)
	assert.Empty(t, lease)

	waited := seen(txn.Updated, late)
	waited.ObservedAt = waited.ObservedAt.Add(-settings.LateAfter)
	before := time.Now().Truncate(time.Second)
	c.put(t, waited)
	c.waitApplied(t, late.Name)
	require.Len(t, lease, 1)
	key, text, _ := strings.Cut(<-lease, "=")
	assert.Equal(t, settings.LateAnnotation, key)
	published, ok := settings.ParseLate(text)
	require.True(t, ok, text)
	assert.False(t, published.At.Before(before), text)
	assert.GreaterOrEqual(t, published.By, settings.LateAfter, text)
}

// TestTheEndOfANodeIsLateBeforeStatusCallsItStuck with the default settings, and is not late when it
// is due.
func TestTheEndOfANodeIsLateBeforeStatusCallsItStuck(t *testing.T) {
	t.Parallel()
	const stuckAfter = time.Minute // the default of status
	ended := time.Now()
	due := schedule.Due(schedule.Pending{Since: ended, Ended: true}, ring.Place{}, settings.DefaultSaveDelay, ended)
	assert.Less(t, due.Add(settings.LateAfter), ended.Add(stuckAfter))
	lease := make(notes, 1)
	var l processor.Lateness
	l.Applied(lease, due, due)
	assert.Empty(t, lease)
}

// TestReturnBeforeTheEndIsSavedIsNotLate: the end may wait for the node to return, for nine batch
// periods.
func TestReturnBeforeTheEndIsSavedIsNotLate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, batch := range []time.Duration{settings.DefaultSaveDelay, 3 * time.Minute} {
		pending := []queue.Queued{
			{Transaction: txn.Transaction{Type: txn.Deleted, ObservedAt: now.Add(time.Second - 9*batch)}},
			{Transaction: txn.Transaction{Type: txn.Added, ObservedAt: now}},
		}
		lease := make(notes, 1)
		var l processor.Lateness
		l.Applied(lease, schedule.DueAtLast(schedule.Of(pending), ring.Place{}, batch, now), now)
		assert.Empty(t, lease, batch)
		l.Applied(lease, schedule.DueAtLast(schedule.Of(pending), ring.Place{}, batch, now), now.Add(settings.LateAfter))
		assert.Len(t, lease, 1, batch)
	}
}

// TestNothingAppliedIsNotLate: another processor was faster, and this one's index is behind.
func TestNothingAppliedIsNotLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("applied"), set{"a": "1"})
	ghost := seen(txn.Updated, n)
	ghost.ObservedAt = ghost.ObservedAt.Add(-time.Hour)
	cm := ghost.ConfigMap(c.transactions)
	cm.UID, cm.CreationTimestamp = "gone", metav1.NewTime(ghost.ObservedAt)
	lease := make(notes, 10)
	c.process(t, setup{lease: lease, history: unconfirmed(t), ghosts: []*corev1.ConfigMap{cm}})
	after := c.addNode(t, c.name("after"), set{"a": "1"})
	c.put(t, seenInTime(after))
	c.waitApplied(t, after.Name, n.Name)
	assert.Nil(t, c.record(t, n.Name))
	assert.Empty(t, lease)
}

// TestLatenessIsPublishedEveryTenSeconds: each costs a write of the Lease.
func TestLatenessIsPublishedEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := make(notes, 100)
		var l processor.Lateness
		for range 60 { // a minute
			l.Applied(lease, time.Now().Add(-settings.LateAfter), time.Now())
			l.Applied(lease, time.Now().Add(-time.Minute), time.Now())
			l.Applied(lease, time.Now().Add(-settings.LateAfter+time.Millisecond), time.Now()) // not late
			time.Sleep(time.Second)
		}
		assert.Len(t, lease, 6)
		<-lease
		_, text, _ := strings.Cut(<-lease, "=")
		published, ok := settings.ParseLate(text)
		assert.True(t, ok && published.By == time.Minute, "the worst since the last one: %s", text)
		l.Applied(nil, time.Time{}, time.Now()) // without a Lease
	})
}
