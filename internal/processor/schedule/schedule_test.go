package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // registers the metrics of queues
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/txn"
)

const batch = 5 * time.Second

var start = time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)

func at(typ txn.Type, age time.Duration) queue.Queued {
	t := queue.Queued{Transaction: txn.Transaction{Type: typ, ObservedAt: start.Add(-age)}, ObjectUID: "first"}
	t.Created = t.ObservedAt.Truncate(time.Second)
	return t
}

func TestDue(t *testing.T) {
	owner, second, last := ring.Place{}, ring.Place{Rank: 1}, ring.Place{Rank: 20}
	behindDead, behindBoth := ring.Place{Unready: true}, ring.Place{Rank: 1, Unready: true}
	asked := at(txn.Updated, 0)
	asked.AtOnce = true
	ahead := at(txn.Updated, -time.Hour) // both clocks, the watcher's and the API server's, are ahead
	watcherAhead := at(txn.Added, -time.Hour)
	watcherAhead.Created = start.Add(-time.Second)

	for name, tc := range map[string]struct {
		pending []queue.Queued
		place   ring.Place
		want    time.Duration // counted from when the process first sees it
	}{
		"a restore, the owner":                          {[]queue.Queued{at(txn.Added, 0)}, owner, 0},
		"a restore, the next":                           {[]queue.Queued{at(txn.Added, 0)}, second, 3 * time.Second},
		"a restore, after silent members":               {[]queue.Queued{at(txn.Added, 0)}, behindDead, time.Second},
		"a restore, after those and a ready one":        {[]queue.Queued{at(txn.Added, 0)}, behindBoth, 4 * time.Second},
		"a restore, the last of many":                   {[]queue.Queued{at(txn.Added, 0)}, last, 5 * time.Second},
		"a restore that was recorded before this start": {[]queue.Queued{at(txn.Added, 5*time.Second)}, last, 0},
		"a change":                                       {[]queue.Queued{at(txn.Updated, 0)}, owner, batch},
		"a change, the next":                             {[]queue.Queued{at(txn.Updated, 0)}, second, batch + 3*time.Second},
		"a change that a user waits for":                 {[]queue.Queued{asked}, owner, 0},
		"a change that has waited":                       {[]queue.Queued{at(txn.Updated, 3*time.Second)}, owner, 2 * time.Second},
		"the end of a node":                              {[]queue.Queued{at(txn.Deleted, 0)}, owner, 9 * batch},
		"the end of a node that has returned":            {[]queue.Queued{at(txn.Deleted, time.Second), at(txn.Added, 0)}, owner, 0},
		"the same, the next counts from the return":      {[]queue.Queued{at(txn.Deleted, 4*time.Second), at(txn.Added, 0)}, second, 3 * time.Second},
		"an urgent one after a change that is due first": {[]queue.Queued{at(txn.Updated, time.Minute), at(txn.Added, 0)}, owner, batch - time.Minute},
		"all clocks are ahead":                           {[]queue.Queued{ahead}, owner, batch},
		"the watcher's clock is ahead":                   {[]queue.Queued{watcherAhead}, owner, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := schedule.Due(schedule.Of(tc.pending), tc.place, batch, start)
			if tc.want <= 0 {
				assert.False(t, got.After(start), "due at %s", got)
				return
			}
			assert.Equal(t, start.Add(tc.want), got)
		})
	}
}

// For arbitrary membership histories, every process may do work that is older than the limits, as
// soon as it starts.
func TestOldWorkIsDueForEveryProcess(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		pending := make([]queue.Queued, 1+g.IntN(4))
		restores := false
		for i := range pending {
			typ := txn.Types()[g.IntN(3)]
			restores = restores || typ == txn.Added
			pending[i] = at(typ, 5*time.Second+time.Duration(g.Int64N(int64(time.Minute))))
		}
		oldest := 5 * time.Second
		if !restores { // saves wait then
			for i := range pending {
				pending[i] = at(pending[i].Type, 50*time.Second+time.Duration(g.Int64N(int64(time.Minute))))
			}
			oldest = 50 * time.Second
		}
		place := ring.Place{Rank: g.IntN(1000), Unready: g.IntN(2) == 0}
		s := schedule.Schedule{Batch: batch}
		require.Zero(t, s.Wait("node-1", schedule.Of(pending), place, start), "%v at %v is older than %s", pending, place, oldest)
	}
}

// After the limits, by its own clock, a running process is due, whatever the stored times are and
// however its place changes.
func TestNoPlaceAndNoClockDelaysWorkForLong(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		typ := txn.Types()[g.IntN(3)]
		pending := []queue.Queued{at(typ, time.Duration(g.Int64N(int64(48*time.Hour)))-24*time.Hour)}
		s := schedule.Schedule{Batch: batch}
		waited := time.Duration(0)
		for {
			place := ring.Place{Rank: g.IntN(50), Unready: g.IntN(2) == 0}
			wait := s.Wait("node-1", schedule.Of(pending), place, start.Add(waited))
			if wait == 0 {
				break
			}
			waited += min(wait, time.Second)
		}
		bound := 5 * time.Second
		if typ != txn.Added {
			bound += 9 * batch
		}
		require.LessOrEqual(t, waited, bound)
	}
}

func TestStartedNodeIsKeptUntilNothingIsPending(t *testing.T) {
	s := schedule.Schedule{Batch: batch}
	pending, place := schedule.Of([]queue.Queued{at(txn.Updated, 0)}), ring.Place{Rank: 1}
	assert.Positive(t, s.Wait("node-1", pending, place, start))
	s.Begin("node-1")
	assert.Zero(t, s.Wait("node-1", pending, place, start))
	s.Forget("node-1")
	assert.Equal(t, batch+3*time.Second, s.Wait("node-1", pending, place, start))
}

func TestAnotherTransactionCountsFromWhenItIsSeen(t *testing.T) {
	s := schedule.Schedule{Batch: batch}
	place := ring.Place{Rank: 1}
	first := at(txn.Added, 0)
	assert.Equal(t, 3*time.Second, s.Wait("node-1", schedule.Of([]queue.Queued{first}), place, start))
	next := at(txn.Added, -time.Minute)
	next.ObjectUID = "next"
	assert.Equal(t, 3*time.Second, s.Wait("node-1", schedule.Of([]queue.Queued{next}), place, start.Add(time.Minute)))
}

func TestOwnerWorksOnItsNodesFirst(t *testing.T) {
	owner, second := ring.Place{Unready: true}, ring.Place{Rank: 1}
	for range 1000 {
		assert.Greater(t, schedule.Priority(true, owner), schedule.Priority(true, second))
		assert.Greater(t, schedule.Priority(true, second), schedule.Priority(false, owner))
		assert.Equal(t, schedule.Priority(false, owner), schedule.Priority(false, second))
	}
}

// Otherwise helpers and owners would compete for each node.
func TestHelpersTakeNodesInAnotherOrderThanTheirOwners(t *testing.T) {
	seen := map[int]bool{}
	for range 1000 {
		seen[schedule.Priority(true, ring.Place{Rank: 1})] = true
	}
	assert.Greater(t, len(seen), 10)
}

// controller-runtime counts waiting items by priority, and merges priorities if there are too many.
func TestDepthOfTheQueueIsRight(t *testing.T) {
	q := priorityqueue.New[int](t.Name())
	defer q.ShutDown()
	const nodes = 200
	for i := range nodes {
		priority := schedule.Priority(i%3 > 0, ring.Place{Rank: i % 2})
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, i)
	}
	for range nodes {
		i, _, _ := q.GetWithPriority()
		q.Done(i)
	}
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "workqueue_depth" })
	require.GreaterOrEqual(t, at, 0)
	for _, depth := range families[at].GetMetric() {
		assert.Zero(t, depth.GetGauge().GetValue(), "%v", depth.GetLabel())
	}
}

// The time that the API server assigns to a transaction is independent of this process's clock.
func TestNodesThatWereSeenLongAgoAreKnown(t *testing.T) {
	start := time.Now()
	s := &schedule.Schedule{Batch: time.Hour}
	s.Wait("old", schedule.Pending{First: "1"}, ring.Place{}, start)
	s.Wait("begun", schedule.Pending{First: "2"}, ring.Place{}, start)
	s.Begin("begun")
	s.Wait("new", schedule.Pending{First: "3"}, ring.Place{}, start.Add(time.Minute))
	assert.Equal(t, []string{"old"}, s.SeenBefore(start.Add(time.Minute)))
	s.Wait("old", schedule.Pending{First: "4"}, ring.Place{}, start.Add(time.Minute))
	assert.Empty(t, s.SeenBefore(start.Add(time.Minute)), "another transaction is the first")
}
