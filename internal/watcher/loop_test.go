package watcher_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// life returns the states of an incarnation of node-1, including its end, and the names of their
// transactions. Each has another marker, so that none supersedes the previous one.
func life(uid types.UID, firstVersion int) (states []*nodeview.Node, names []string) {
	for i := range 5 {
		version := strconv.Itoa(firstVersion + i)
		states = append(states, state(uid, version, set{"rack": fmt.Sprint("r", min(i, 3)), labels.Marker: version}))
		names = append(names, txn.NodeHash("node-1")+"."+version)
	}
	return states, names
}

// goOn delivers everything after the first state.
func goOn(nodes *informer, states []*nodeview.Node) {
	last := len(states) - 1
	for i := range last - 1 {
		nodes.OnUpdate(states[i], states[i+1])
	}
	nodes.OnDelete(states[last])
}

// live delivers the life of an incarnation of node-1 and returns the names of its transactions.
func live(nodes *informer, uid types.UID, firstVersion int) []string {
	states, names := life(uid, firstVersion)
	nodes.OnAdd(states[0], false)
	goOn(nodes, states)
	return names
}

func TestEventsBecomeTransactionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		live(w.informer, "a", 8) // 10 comes after 9, though not as text
		synctest.Wait()
		want := []string{"added a@8", "updated a@9", "updated a@10", "updated a@11", "deleted a@12"}
		assert.Equal(t, want, summary(queued(t, w.client, transactions, "node-1")))
		assert.Zero(t, w.stop(t), "there is nothing to wait for")
	})
}

func TestHeartbeatsAreNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		w.OnUpdate(state("a", "5", set{"rack": "r7"}), state("a", "6", set{"rack": "r7", labels.Marker: "3"}))
		w.stop(t)
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
	})
}

func TestFaultsDelayButKeepTheOrder(t *testing.T) {
	creates := faults.Calls{Verb: faults.Create}
	for name, fault := range map[string]interface {
		faults.Fault
		Hits() int
	}{
		"outage at the first":          &faults.Outage{Calls: faults.Calls{Verb: creates.Verb, Times: 7}},
		"outage in between":            &faults.Outage{Calls: faults.Calls{Verb: creates.Verb, Skip: 2, Times: 3}},
		"answer lost at the first":     &faults.LostAnswer{Calls: faults.Calls{Verb: creates.Verb, Times: 1}},
		"answer lost in between":       &faults.LostAnswer{Calls: faults.Calls{Verb: creates.Verb, Skip: 2, Times: 1}},
		"many answers lost":            &faults.LostAnswer{Calls: faults.Calls{Verb: creates.Verb, Times: 20}},
		"answer lost, then no look":    &faults.LostAnswer{Calls: faults.Calls{Times: 4}},
		"slow":                         &faults.Slow{Calls: faults.Calls{Verb: creates.Verb, Times: 3}, Delay: 20 * time.Second},
		"conflicts, whatever they say": &faults.Conflict{Calls: faults.Calls{Verb: creates.Verb, Skip: 1, Times: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &faults.Log{Calls: faults.Calls{Verb: faults.Create}}
				w := start(t, &informer{}, log, fault)
				names := live(w.informer, "a", 8)
				time.Sleep(2 * time.Minute)
				assert.Positive(t, fault.Hits())
				want := []string{"added a@8", "updated a@9", "updated a@10", "updated a@11", "deleted a@12"}
				assert.Equal(t, want, summary(queued(t, w.client, transactions, "node-1")))
				require.NoError(t, checkOrder(log, names))
				assert.Zero(t, w.stop(t))
			})
		})
	}
}

func TestFailingNodeBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := state("a", "8", nil)
		down := &faults.Outage{Calls: faults.Calls{Name: txn.NodeHash("node-1") + ".8"}}
		w := start(t, &informer{}, down)
		w.OnAdd(first, false)
		other := state("b", "9", nil)
		other.Name = "node-2"
		w.OnAdd(other, false)
		synctest.Wait()
		assert.Equal(t, []string{"added b@9"}, summary(queued(t, w.client, transactions, "node-2")))
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
		down.End()
		w.stop(t)
	})
}

func TestLongOutageIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &faults.Outage{Calls: faults.Calls{Verb: faults.Create}}
		w := start(t, &informer{}, down)
		w.OnAdd(state("a", "8", nil), false)
		time.Sleep(time.Hour)
		assert.Less(t, down.Hits(), 2*3600, "attempts in an hour")
		down.End()
		time.Sleep(10 * time.Second)
		assert.Len(t, queued(t, w.client, transactions, "node-1"), 1)
		w.stop(t)
	})
}

func TestTombstoneIsDeleteWithLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		last := state("a", "8", set{"rack": "r7", labels.Marker: "3"})
		w.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "node-1", Obj: last})
		synctest.Wait()
		all := queued(t, w.client, transactions, "node-1")
		require.Equal(t, []string{"deleted a@8"}, summary(all))
		assert.Equal(t, set{"rack": "r7"}, all[0].Labels)
		assert.Equal(t, "3", all[0].Marker)
		w.stop(t)
	})
}

func TestOtherObjectsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{initial: []any{"no node"}})
		w.OnAdd("no node", false)
		w.OnUpdate("no node", nil)
		w.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "node-1"})
		w.stop(t)
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
	})
}

func TestMissedReplacementIsDeleteAndAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		w.OnUpdate(state("a", "8", set{"rack": "r7"}), state("b", "15", nil))
		synctest.Wait()
		assert.Equal(t, []string{"deleted a@8", "added b@15"}, summary(queued(t, w.client, transactions, "node-1")))
		w.stop(t)
	})
}

// The add of an incarnation and its missed delete have one name if nothing happened in between.
func TestTakenNameIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		only := state("a", "8", set{"rack": "r7"})
		w.OnAdd(only, false)
		w.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "node-1", Obj: only})
		w.OnAdd(state("b", "15", nil), false)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"added a@8"}, summary(queued(t, w.client, transactions, "node-1")), "what comes after it waits too")

		applied := txn.Transaction{Node: "node-1", Revision: revision.MustParse("8")}.ConfigMap(transactions)
		require.NoError(t, w.client.Delete(t.Context(), applied))
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"deleted a@8", "added b@15"}, summary(queued(t, w.client, transactions, "node-1")))
		w.stop(t)
	})
}

func TestSameEventOfPeerCountsAsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		theirs := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "a", Revision: revision.MustParse("8"), Labels: set{}, FoundsRecord: true, ObservedAt: time.Now().Add(-time.Second)}
		require.NoError(t, w.client.Create(t.Context(), theirs.ConfigMap(transactions)))
		live(w.informer, "a", 8)
		synctest.Wait()
		all := queued(t, w.client, transactions, "node-1")
		require.Len(t, all, 5)
		assert.Equal(t, theirs.ObservedAt.UTC(), all[0].ObservedAt)
		w.stop(t)
	})
}

// While a rolling update turns --record-updates on, the old watchers record adds that create no
// first record.
func TestAddWithoutFoundsRecordIsDifferent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		theirs := txn.Transaction{Type: txn.Added, Node: "node-1", UID: "a", Revision: revision.MustParse("8"), Labels: set{}}
		require.NoError(t, w.client.Create(t.Context(), theirs.ConfigMap(transactions)))
		w.OnAdd(state("a", "8", nil), false)
		time.Sleep(time.Minute)
		all := queued(t, w.client, transactions, "node-1")
		require.Len(t, all, 1)
		require.False(t, all[0].FoundsRecord, "one name holds one transaction")
		require.NoError(t, w.client.Delete(t.Context(), theirs.ConfigMap(transactions))) // it is applied
		time.Sleep(10 * time.Second)
		all = queued(t, w.client, transactions, "node-1")
		require.Len(t, all, 1)
		assert.True(t, all[0].FoundsRecord)
		w.stop(t)
	})
}

func TestTooLargeIsReportedOnceAndBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &informer{})
		huge := set{}
		for i := range txn.MaxDataBytes/63 + 1 {
			huge[fmt.Sprint("key-", i)] = strings.Repeat("v", 63)
		}
		w.OnUpdate(state("a", "7", nil), state("a", "8", huge))
		synctest.Wait() // otherwise the next one supersedes it before it is tried
		trimmed := maps.Clone(huge)
		for i := range 1000 {
			delete(trimmed, fmt.Sprint("key-", i))
		}
		w.OnUpdate(state("a", "8", huge), state("a", "9", trimmed))
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"updated a@9"}, summary(queued(t, w.client, transactions, "node-1")))
		assert.InDelta(t, 1, metric(t, w.registry, "nodekeeper_transactions_too_large_total"), 0)
		if assert.Len(t, w.recorder.Events, 1) {
			assert.Contains(t, <-w.recorder.Events, "Warning LabelsTooLarge The labels of this node are not saved: they do not fit into a ConfigMap")
		}
		w.stop(t)
	})
}

func TestNodeNamedLikeRootCAIsReportedAndIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		initial, added := state("a", "8", nil), state("b", "9", nil)
		initial.Name, added.Name = record.RootCAName, record.RootCAName
		w := start(t, &informer{initial: []any{initial}})
		w.OnDelete(initial)
		w.OnAdd(added, false)
		w.OnUpdate(added, added)
		synctest.Wait()
		assert.Empty(t, queued(t, w.client, transactions, record.RootCAName))
		if assert.Len(t, w.recorder.Events, 2, "one an incarnation") {
			assert.Contains(t, <-w.recorder.Events, "Warning LabelsNotKept")
		}
		w.stop(t)
	})
}

func TestStartRetriesUntilRecordsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults.Log{Calls: faults.Calls{Verb: faults.Create}}
		down := &faults.Outage{Calls: faults.Calls{Verb: faults.List, Times: 5}}
		states, names := life("a", 8)
		w := start(t, &informer{initial: []any{states[0]}}, log, down)
		goOn(w.informer, states)
		synctest.Wait()
		assert.Empty(t, queued(t, w.client, transactions, "node-1"), "nothing may come before what the start finds")
		time.Sleep(time.Minute)
		assert.Equal(t, 5, down.Hits())
		want := []string{"added a@8", "updated a@9", "updated a@10", "updated a@11", "deleted a@12"}
		assert.Equal(t, want, summary(queued(t, w.client, transactions, "node-1")))
		require.NoError(t, checkOrder(log, names))
		w.stop(t)
	})
}

func TestQuietNodeIsNotRecordedAndDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved := record.Record{Node: "node-1", Revision: revision.MustParse("3"), Source: "a", Labels: set{"rack": "r7"}}
		c := faults.Fake().WithObjects(saved.ConfigMap(records)).Build()
		w := startWith(t, c, &informer{initial: []any{state("a", "8", saved.Labels)}})
		assert.Zero(t, w.stop(t))
		assert.Empty(t, queued(t, w.client, transactions, "node-1"))
	})
}

// While all watchers were down, the labels became equal to the saved ones again, and an earlier
// change is still pending.
func TestStartRecordsNodeWithPendingTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved := record.Record{Node: "node-1", Revision: revision.MustParse("3"), Source: "a", Labels: set{"rack": "r7"}}
		change := txn.Transaction{Type: txn.Updated, Node: "node-1", UID: "a", Revision: revision.MustParse("5"), Labels: set{"rack": "r8"}}
		c := faults.Fake().WithObjects(saved.ConfigMap(records), change.ConfigMap(transactions)).Build()
		w := startWith(t, c, &informer{initial: []any{state("a", "8", saved.Labels)}})
		w.stop(t)
		assert.Equal(t, []string{"updated a@5", "updated a@8"}, summary(queued(t, w.client, transactions, "node-1")))
	})
}
