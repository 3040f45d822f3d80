package watcher_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/internal/watcher"
)

const (
	turnStep = time.Second     // as in the watcher
	noteTime = 4 * time.Second // as in the watcher
)

// rank is the position of a watcher among those that may record an event. At 0 it is the owner.
type rank int

func (r rank) Rank(string) (ready int, unready bool) { return int(r), false }

// member is a watcher on a ring, with the cache of stored objects.
type member struct {
	*running

	objects *watcher.Stored
	stored  *informer // of the objects
}

// throughFaults puts faults between a watcher and its cluster.
func throughFaults(t *testing.T, fault ...faults.Fault) func(*watcher.Config) {
	t.Helper()
	return func(cfg *watcher.Config) {
		c, ok := cfg.Client.(client.WithWatch)
		require.True(t, ok)
		cfg.Client = faults.Client(c, fault...)
	}
}

func startMember(t *testing.T, r rank, change ...func(*watcher.Config)) *member {
	t.Helper()
	m := &member{objects: watcher.NewStored(transactions, records), stored: &informer{}}
	next := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "next", ResourceVersion: "999"}} // after everything observed
	m.running = startConfigured(t, faults.Fake().WithObjects(next).Build(), &informer{}, func(cfg *watcher.Config) {
		cfg.Stored, cfg.StoredInformer, cfg.Ring = m.objects, m.stored, r
		for _, set := range change {
			set(cfg)
		}
	})
	return m
}

// shows adds a ConfigMap to the cache, as the program's cache stores it.
func (m *member) shows(t *testing.T, cm *corev1.ConfigMap) {
	t.Helper()
	obj, err := m.objects.Transform(cm.DeepCopy())
	require.NoError(t, err)
	m.stored.OnAdd(obj, false)
	synctest.Wait()
}

// observeDelete delivers the deletion of a node.
func (m *member) observeDelete(uid types.UID, resourceVersion string) {
	m.OnDelete(state(uid, resourceVersion, set{"rack": "r7"}))
	synctest.Wait()
}

func TestOwnerRecordsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, 0)
		m.observeDelete("u1", "10")
		assert.Equal(t, 1, count(t, m.client))
		m.stop(t)
	})
}

func TestEventIsLeftToPredecessors(t *testing.T) {
	for r := rank(1); r <= 3; r++ {
		synctest.Test(t, func(t *testing.T) {
			m := startMember(t, r)
			m.observeDelete("u1", "10")
			time.Sleep(time.Duration(r)*turnStep - time.Millisecond)
			assert.Zero(t, count(t, m.client), "rank %d", r)
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			assert.Equal(t, 1, count(t, m.client), "rank %d: the others are gone", r)
			m.stop(t)
		})
	}
}

// The cache of what others have stored does not count then.
func TestUnconfirmedEventIsLeftToOthersLonger(t *testing.T) {
	for r, want := range map[rank]time.Duration{0: 0, 1: 4 * time.Second, 3: 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := startMember(t, r, func(cfg *watcher.Config) { cfg.History = unconfirmed(t) })
			began := time.Now()
			m.observeDelete("u1", "10")
			for count(t, m.client) == 0 && time.Since(began) < time.Minute {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			assert.InDelta(t, want, time.Since(began), float64(2*time.Millisecond), "rank %d", r)
			m.stop(t)
		})
	}
}

// The cache may be stale after a cut. Endless cuts delay the event for four seconds.
func TestEventIsLeftToOthersFromLastCut(t *testing.T) {
	for name, tc := range map[string]struct {
		cuts   int // one each 900 ms
		before int
		want   time.Duration
	}{
		"no cut":            {0, 1, turnStep},
		"the owner":         {9, 0, 0},
		"one":               {1, 1, 900*time.Millisecond + turnStep},
		"two":               {2, 1, 1800*time.Millisecond + turnStep},
		"cuts without end":  {9, 1, 4 * time.Second},
		"one, for the last": {1, 3, 900*time.Millisecond + 3*turnStep},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, cut := cuttable(t)
				m := startMember(t, rank(tc.before), func(cfg *watcher.Config) { cfg.History = h })
				began, cuts := time.Now(), 0
				m.observeDelete("u1", "10")
				for count(t, m.client) == 0 && time.Since(began) < time.Minute {
					time.Sleep(time.Millisecond)
					if at := time.Since(began); cuts < tc.cuts && at%(900*time.Millisecond) == 0 {
						cuts++
						cut()
					}
					synctest.Wait()
				}
				assert.InDelta(t, tc.want, time.Since(began), float64(2*time.Millisecond))
				m.stop(t)
			})
		})
	}
}

// Even if the cache does not contain it.
func TestEventStoredByOthersIsNotWrittenAgain(t *testing.T) {
	stored := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u1", Revision: revision.MustParse("10"), Labels: set{"rack": "r7"}}
	for r, want := range map[rank]int{0: 1, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			creates := &faults.Log{Calls: faults.Calls{Verb: faults.Create}}
			m := startMember(t, r, func(cfg *watcher.Config) {
				require.NoError(t, cfg.Client.Create(t.Context(), stored.ConfigMap(transactions)))
			}, throughFaults(t, creates))
			m.observeDelete("u1", "10")
			time.Sleep(turnStep + time.Millisecond)
			synctest.Wait()
			assert.Len(t, creates.Entries(), want, "rank %d", r)
			assert.Zero(t, metric(t, m.registry, "nodekeeper_unrecorded_events"))
			m.stop(t)
		})
	}
}

// client-go repeats a read that an overloaded API server rejects, and there are few writers.
func TestEventIsWrittenIfLookupTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &faults.Slow{Calls: faults.Calls{Verb: faults.Get}, Delay: time.Hour}
		m := startMember(t, 1, throughFaults(t, stuck))
		m.observeDelete("u1", "10")
		time.Sleep(turnStep + time.Second + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, stuck.Hits())
		assert.Equal(t, 1, count(t, m.client))
		m.stop(t)
	})
}

func TestEventsOfOneNodeWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, 2)
		for _, uid := range []types.UID{"u1", "u2", "u3"} {
			m.observeDelete(uid, "1"+string(uid[1]))
		}
		time.Sleep(2*turnStep - time.Millisecond)
		assert.Zero(t, count(t, m.client))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 3, count(t, m.client), "a dead owner costs one delay and not one for each event")
		m.stop(t)
	})
}

func TestEventStoredByOthersIsNotRecordedAgain(t *testing.T) {
	r := record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("10"), Source: "u1"}
	observed := txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "u1", Revision: revision.MustParse("10"), Labels: set{"rack": "r7"}}
	for name, tc := range map[string]struct {
		stored *corev1.ConfigMap
		want   int // how many are recorded
	}{
		"in the queue":                           {observed.ConfigMap(transactions), 0},
		"in the record":                          {r.ConfigMap(records), 0},
		"another event of that name":             {change(observed, func(x *txn.Transaction) { x.UID = "u2" }).ConfigMap(transactions), 1},
		"another type":                           {change(observed, func(x *txn.Transaction) { x.Type = txn.Updated }).ConfigMap(transactions), 1},
		"an older event":                         {change(observed, func(x *txn.Transaction) { x.Revision = revision.MustParse("9") }).ConfigMap(transactions), 1},
		"an older record":                        {change(r, func(x *record.Record) { x.Revision = revision.MustParse("9") }).ConfigMap(records), 1},
		"labels that people gave later":          {preserve.UserRecord("node-1", labels.Side{Labels: set{"rack": "r8"}}, revision.MustParse("20")).ConfigMap(records), 1},
		"a record of another incarnation":        {change(r, func(x *record.Record) { x.Source = "u2" }).ConfigMap(records), 1},
		"no readable transaction, of its name":   {spoilt(observed.ConfigMap(transactions)), 1},
		"no readable record":                     {spoilt(r.ConfigMap(records)), 1},
		"a transaction where the records are":    {observed.ConfigMap(records), 1},
		"a record where the transactions belong": {r.ConfigMap(transactions), 1},
	} {
		for _, isFirst := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, 1)
				if isFirst { // seen before the event
					m.shows(t, tc.stored)
				}
				m.observeDelete("u1", "10")
				if !isFirst {
					m.shows(t, tc.stored)
				}
				time.Sleep(turnStep + time.Millisecond)
				synctest.Wait()
				assert.Equal(t, tc.want, count(t, m.client), "%s, first: %v", name, isFirst)
				m.stop(t)
				assert.Equal(t, tc.want, count(t, m.client), "%s, in the end", name)
			})
		}
	}
}

func TestStopLeavesNothingToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, 2)
		m.observeDelete("u1", "10")
		assert.Less(t, m.stop(t), turnStep)
		assert.Equal(t, 1, count(t, m.client))
	})
}

// No other watcher may have seen the events, and there are three seconds.
func TestStopStoresAsMuchAsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 80 // 16 are written at a time
		m := startMember(t, 1, throughFaults(t, &faults.Slow{Delay: 500 * time.Millisecond}))
		time.Sleep(time.Second)
		for i := range nodes {
			n := state(types.UID("u"+strconv.Itoa(i)), strconv.Itoa(i+1), nil)
			n.Name = "node-" + strconv.Itoa(i)
			m.OnAdd(n, false)
		}
		m.stop(t)
		assert.Equal(t, nodes, count(t, m.client))
	})
}

// restored delivers the result of a restore whose record is not noted yet.
func (m *member) restored(t *testing.T, shownVersion string) (noted record.Record) {
	t.Helper()
	r := record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.Of(shownVersion), Source: "u1"}
	m.shows(t, r.ConfigMap(records))
	r.Revision = revision.MustParse("10")
	m.OnUpdate(state("u2", "20", nil), state("u2", "21", set{"rack": "r7", labels.Marker: "10"}))
	synctest.Wait()
	r.Restored = record.Restoration{UID: "u2", Revision: revision.MustParse("21")}
	return r
}

func TestNotedRestoreIsNotRecorded(t *testing.T) {
	for name, shownVersion := range map[string]string{"of the record that is known": "10", "of a later one": "9"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, 0)
				noted := m.restored(t, shownVersion)
				assert.Zero(t, count(t, m.client))
				m.shows(t, noted.ConfigMap(records))
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Zero(t, count(t, m.client))
				m.stop(t)
				assert.Zero(t, count(t, m.client))
			})
		})
	}
}

func TestUnnotedRestoreIsRecorded(t *testing.T) {
	for name, do := range map[string]func(*testing.T, *member){
		"after a while": func(_ *testing.T, m *member) {
			time.Sleep(noteTime - time.Millisecond)
			assert.Zero(t, count(t, m.client))
			time.Sleep(2 * time.Millisecond)
		},
		"when more has happened": func(_ *testing.T, m *member) { m.observeDelete("u2", "30") },
		"when it is to stop":     func(t *testing.T, m *member) { t.Helper(); m.stop(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, 0)
				m.restored(t, "10")
				do(t, m)
				synctest.Wait()
				all := summary(queued(t, m.client, transactions, "node-1"))
				require.NotEmpty(t, all)
				assert.Equal(t, "updated u2@21", all[0])
				m.cancel()
			})
		})
	}
}

// The webhook restored them, which is noted only after the transaction is stored.
func TestNodeAddedWithItsLabelsIsRecordedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, 0)
		r := record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("10"), Source: "u1"}
		m.shows(t, r.ConfigMap(records))
		m.OnAdd(state("u2", "20", set{"rack": "r7", labels.Marker: "10"}), false)
		synctest.Wait()
		assert.Equal(t, []string{"added u2@20"}, summary(queued(t, m.client, transactions, "node-1")))
		m.cancel()
	})
}

func change[T any](x T, do func(*T)) T {
	do(&x)
	return x
}

// spoilt adds a data key that is not a valid label key.
func spoilt(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm.Data["---"] = "nonsense"
	return cm
}

// The note of the restore does not arrive, because no processor runs or the watch of records is
// behind, and the node is edited more often than the wait for a note allows.
func TestDelayOfEditsOfRestoredNodeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, 0)
		m.restored(t, "10")
		edited := func(i int) *nodeview.Node {
			return state("u2", strconv.Itoa(21+i), set{"rack": "r7", "edit": strconv.Itoa(i), labels.Marker: "10"})
		}
		for i := 1; i <= 4; i++ {
			time.Sleep(3 * time.Second)
			m.OnUpdate(edited(i-1), edited(i))
			synctest.Wait()
		}
		assert.NotZero(t, count(t, m.client))
		m.stop(t)
	})
}
