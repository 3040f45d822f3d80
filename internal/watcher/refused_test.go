package watcher_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

// All writes were rejected for a while, as by a quota. Then the other watcher is the first to
// succeed, and stores everything. This one has nothing left to write, but it must not drop its
// events only four at a time, every two seconds: other watchers that list wait for it, and new
// nodes wait behind events that are stored already.
func TestEventsStoredByOthersCloseTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 500
		refused := &refuses{faults.Outage{Calls: faults.Calls{Verb: faults.Create}}}
		m := &member{objects: watcher.NewStored(transactions, records), stored: &informer{}}
		m.running = startConfigured(t, faults.Fake().Build(), &informer{}, func(cfg *watcher.Config) {
			cfg.Stored, cfg.StoredInformer = m.objects, m.stored
		}, refused)
		var all []txn.Transaction
		for i := range nodes {
			n := state(types.UID("u"+strconv.Itoa(i)), strconv.Itoa(i+1), nil)
			n.Name = "node-" + strconv.Itoa(i)
			m.OnAdd(n, false)
			seen := txn.Of(txn.Added, n)
			seen.ObservedAt, seen.FoundsRecord = time.Now(), true
			all = append(all, seen)
		}
		time.Sleep(10 * time.Second)
		for _, seen := range all { // by the other watcher, within a moment
			m.shows(t, seen.ConfigMap(transactions))
		}
		refused.End() // for this one, too
		time.Sleep(10 * time.Second)
		assert.Zero(t, metric(t, m.registry, "nodekeeper_unrecorded_events"), "all of it is stored, and seen to be")

		returned := state("late", "9000", nil)
		returned.Name = "late"
		m.OnAdd(returned, false)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"added late@9000"}, summary(queued(t, m.client, transactions, "late")), "every write succeeds now")
		begin := time.Now()
		for metric(t, m.registry, "nodekeeper_unrecorded_events") > 0 {
			time.Sleep(time.Second)
		}
		t.Logf("the outbox was empty %s later", time.Since(begin))
		m.stop(t)
	})
}

// All writes are rejected, and before that the owner stored one event a second. A read that finds
// them proves nothing about writes.
func TestFoundEventDoesNotCloseTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, stored = 200, 60
		refused := &refuses{faults.Outage{Calls: faults.Calls{Verb: faults.Create}}}
		creates := &faults.Log{Calls: faults.Calls{Verb: faults.Create}}
		m := startMember(t, 1, throughFaults(t, creates, refused))
		for i := range nodes {
			n := state(types.UID("u"+strconv.Itoa(i)), strconv.Itoa(i+1), nil)
			n.Name = "node-" + strconv.Itoa(i)
			m.OnAdd(n, false)
		}
		time.Sleep(20 * time.Second)
		before := creates.Hits()
		for i := range stored { // the cache of this one is behind
			n := state(types.UID("s"+strconv.Itoa(i)), strconv.Itoa(i+1000), nil)
			n.Name = "stored-" + strconv.Itoa(i)
			seen := txn.Of(txn.Added, n)
			seen.ObservedAt, seen.FoundsRecord = time.Now(), true
			require.NoError(t, m.client.Create(t.Context(), seen.ConfigMap(transactions)))
			m.OnAdd(n, false)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		assert.Less(t, creates.Hits()-before, 200, "four nodes try every two seconds")
		refused.End()
		m.stop(t)
	})
}
