package processor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

const longAgo = "2006-01-02T15:04:05Z"

// TestNodeThatReturnsWhileItsRecordIsRemovedGetsItsLabels: no write can be conditional on there being no Node, so the record is
// removed under it, and is to be put back.
func TestNodeThatReturnsWhileItsRecordIsRemovedGetsItsLabels(t *testing.T) {
	t.Parallel()
	removal := faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}
	for name, after := range map[string]fault{
		"only that":                   &faults.Log{},
		"the answer is lost too":      &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}},
		"an outage follows":           &faults.Outage{Calls: faults.Calls{Verb: faults.Get, Kind: "Node", Skip: 1, Times: 3}},
		"it is not put back at first": &faults.Outage{Calls: faults.Calls{Verb: faults.Create, Kind: "ConfigMap", Times: 2}},
		"the answer to that is lost":  lost(faults.Create, "ConfigMap", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.away(t, "node", longAgo)
			before := c.stored(t, node)
			before.Annotations["example.com/note"] = "of a user"
			require.NoError(t, c.Update(t.Context(), before))
			var n *corev1.Node
			back := &faults.Race{Calls: faults.Calls{Verb: removal.Verb, Kind: removal.Kind, Times: 1}, First: func(context.Context) {
				n = c.addNode(t, node, set{"rack": "new"})
			}}
			_ = c.sweeper(t, back, after).SweepRecordsOnce(t.Context(), start) // what it says is tested elsewhere

			require.NotNil(t, n)
			assert.Positive(t, after.Hits())
			kept := c.stored(t, node)
			require.NotNil(t, kept)
			assert.NotEqual(t, before.UID, kept.UID, "it was removed under the node")
			assert.Equal(t, before.Data, kept.Data)
			assert.Equal(t, "of a user", kept.Annotations["example.com/note"])
			assert.NotContains(t, kept.Annotations, record.AwaySinceAnnotation)
			c.put(t, seen(txn.Added, n))
			c.process(t, setup{})
			c.waitApplied(t, node)
			assert.Equal(t, set{"rack": "r7", labels.Marker: "9"}, c.node(t, node).Labels)
		})
	}
}

func TestOutageAfterTheRemovalIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := inMemory()
		node := c.away(t, "node", longAgo)
		back := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}, First: func(context.Context) { c.addNode(t, node, nil) }}
		looks := &faults.Outage{Calls: faults.Calls{Verb: faults.Get, Kind: "Node", Skip: 1}}
		renewals := &faults.Outage{Calls: faults.Calls{Verb: faults.Update, Kind: "Lease"}}
		time.AfterFunc(time.Minute, looks.End) // the lock is lost long before
		require.NoError(t, c.sweeper(t, back, looks, renewals).SweepRecordsOnce(t.Context(), start))
		assert.Positive(t, renewals.Hits())
		assert.NotNil(t, c.stored(t, node))
	})
}

func TestProcessorThatIsToldToEndLooksOnceMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", longAgo)
	ctx, end := context.WithCancel(t.Context())
	back := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}, First: func(context.Context) { c.addNode(t, node, nil) }}
	told := &faults.Race{Calls: faults.Calls{Verb: faults.Get, Kind: "Node", Skip: 1, Times: 1}, First: func(context.Context) { end() }}
	require.NoError(t, c.sweeper(t, back, told).SweepRecordsOnce(ctx, start))
	assert.Equal(t, 1, told.Hits())
	assert.NotNil(t, c.stored(t, node))
}

// TestRefusalToPutARecordBackIsTold: in a namespace that is being deleted, for instance, it would be refused for ever.
func TestRefusalToPutARecordBackIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", longAgo)
	back := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}, First: func(context.Context) { c.addNode(t, node, nil) }}
	refused := &faults.Conflict{Calls: faults.Calls{Verb: faults.Create, Kind: "ConfigMap"}}
	require.ErrorContains(t, c.sweeper(t, back, refused).SweepRecordsOnce(t.Context(), start), "putting the record back")
	assert.Equal(t, 1, refused.Hits())
}

func TestLookAfterTheRemovalEndsWithTheProcessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := inMemory()
		c.away(t, "node", longAgo)
		looks := &faults.Outage{Calls: faults.Calls{Verb: faults.Get, Kind: "Node", Skip: 1}}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		began := time.Now()
		require.ErrorContains(t, c.sweeper(t, looks).SweepRecordsOnce(ctx, start), "once more")
		assert.Less(t, time.Since(began), time.Minute+2*time.Second)
	})
}

// TestRecordThatANodeMadeAnewIsNotReplaced: then its node works without the lock that the sweeper lost.
func TestRecordThatANodeMadeAnewIsNotReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", longAgo)
	back := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Times: 1}, First: func(context.Context) { c.addNode(t, node, nil) }}
	made := &faults.Race{Calls: faults.Calls{Verb: faults.Create, Kind: "ConfigMap", Times: 1}, First: func(context.Context) {
		c.save(t, record.Record{Node: node, Labels: set{"rack": "new"}, Version: "20", Source: "b"})
	}}
	require.NoError(t, c.sweeper(t, back, made).SweepRecordsOnce(t.Context(), start))
	assert.Equal(t, 1, made.Hits())
	assert.Equal(t, "20", c.record(t, node).Version)
}

// TestEventOfANodeThatWasNeverRestoredIsASignOfLife: it has no effect on the saved labels, but the node was not away all the time.
func TestEventOfANodeThatWasNeverRestoredIsASignOfLife(t *testing.T) {
	t.Parallel()
	for name, typ := range map[string]txn.Type{"added": txn.Added, "updated": txn.Updated, "deleted": txn.Deleted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.away(t, "node", longAgo)
			before := c.record(t, node)
			c.put(t, event(typ, node, "briefly here", "20", set{"rack": "new"}))
			c.process(t, setup{})
			c.waitApplied(t, node)
			assert.NotContains(t, c.stored(t, node).Annotations, record.AwaySinceAnnotation)
			assert.Equal(t, before, c.record(t, node))
		})
	}
}

// TestNoteThatIsOfTheFutureIsWaitedFor: a clock that was wrong, or a user, keeps a record for longer, and never for shorter.
func TestNoteThatIsOfTheFutureIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "2026-11-22T03:14:15Z")
	noted := c.stored(t, node).ResourceVersion
	p := c.sweeper(t)
	for _, after := range []time.Duration{0, retention, 24 * time.Hour, 24*time.Hour + retention - time.Second} {
		require.NoError(t, p.SweepRecordsOnce(t.Context(), start.Add(after)))
		assert.Equal(t, noted, c.stored(t, node).ResourceVersion)
	}
	require.NoError(t, p.SweepRecordsOnce(t.Context(), start.Add(24*time.Hour+retention)))
	assert.Nil(t, c.stored(t, node))
}

func TestPartsOfASecondCount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	p := c.sweeper(t)
	late := start.Add(time.Second - time.Millisecond)
	require.NoError(t, p.SweepRecordsOnce(t.Context(), late))
	require.NoError(t, p.SweepRecordsOnce(t.Context(), late.Add(retention-time.Millisecond)))
	assert.NotNil(t, c.stored(t, node), "no record is removed early")
	require.NoError(t, p.SweepRecordsOnce(t.Context(), late.Add(retention)))
	assert.Nil(t, c.stored(t, node))
}

func TestWithoutRetentionNothingIsRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", longAgo)
	before := c.stored(t, node)
	looks := &faults.Log{Calls: faults.Calls{Verb: faults.List, Kind: "Node"}}
	stop := c.process(t, setup{faults: []faults.Fault{looks}})
	require.Eventually(t, func() bool { return len(looks.Entries()) == 1 }, patience, tick, "the look for protected nodes")
	other := c.name("other")
	c.put(t, event(txn.Added, other, "a", "9", nil))
	c.waitApplied(t, other)
	stop()
	assert.Len(t, looks.Entries(), 1, "no look for nodes that are away")
	assert.Equal(t, before, c.stored(t, node))
}

// TestStaleCacheRemovesNothing: what the cache says is away, for long, is written since.
func TestStaleCacheRemovesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	expired, noted := c.away(t, "expired", longAgo), c.away(t, "noted", "")
	behind := c.frozenList(t)
	want := map[string]string{}
	for _, node := range []string{expired, noted} {
		cm := record.Record{Node: node, Version: "10", Source: "b"}.ConfigMap(c.records)
		require.NoError(t, c.Update(t.Context(), cm))
		want[node] = cm.ResourceVersion
	}
	p := c.sweeperWith(t, behind, retention)
	for i := range 3 {
		require.NoError(t, p.SweepRecordsOnce(t.Context(), start.Add(time.Duration(i)*retention)))
	}
	for node, version := range want {
		if assert.NotNil(t, c.stored(t, node)) {
			assert.Equal(t, version, c.stored(t, node).ResourceVersion)
		}
	}
}

// frozenRecords is a cache whose list of records is behind.
type frozenRecords struct {
	uncached

	namespace string
	records   corev1.ConfigMapList
}

func (f *frozenRecords) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if (&client.ListOptions{}).ApplyOptions(opts).Namespace != f.namespace {
		return f.uncached.List(ctx, list, opts...)
	}
	f.records.DeepCopyInto(list.(*corev1.ConfigMapList))
	return nil
}

func (c *cluster) frozenList(t *testing.T) *frozenRecords {
	t.Helper()
	f := &frozenRecords{uncached: uncached{c.WithWatch}, namespace: c.records}
	require.NoError(t, c.List(t.Context(), &f.records, client.InNamespace(c.records)))
	return f
}

func TestTwoProcessorsSweepAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	expired, live := c.away(t, "expired", longAgo), c.away(t, "live", longAgo)
	first := c.away(t, "first-seen", "")
	c.addNode(t, live, nil)
	var sweeps sync.WaitGroup
	for range 4 {
		p := c.sweeper(t, &faults.Slow{Calls: faults.Calls{Verb: faults.Get}, Delay: 5 * time.Millisecond})
		sweeps.Go(func() {
			for range 3 {
				assert.NoError(t, p.SweepRecordsOnce(t.Context(), start))
			}
		})
	}
	sweeps.Wait()
	assert.Nil(t, c.stored(t, expired))
	assert.NotContains(t, c.stored(t, live).Annotations, record.AwaySinceAnnotation)
	assert.Equal(t, "2026-11-21T03:14:15Z", c.stored(t, first).Annotations[record.AwaySinceAnnotation])
}

// TestAnotherProcessorGoesOnFromTheNote: the time that a node is away outlives every processor.
func TestAnotherProcessorGoesOnFromTheNote(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	require.NoError(t, c.sweeper(t).SweepRecordsOnce(t.Context(), start))
	require.NoError(t, c.sweeper(t).SweepRecordsOnce(t.Context(), start.Add(retention-time.Second)))
	assert.NotNil(t, c.stored(t, node))
	require.NoError(t, c.sweeper(t).SweepRecordsOnce(t.Context(), start.Add(retention)))
	assert.Nil(t, c.stored(t, node))
}

// inMemory returns a cluster for tests in fake time.
func inMemory() *cluster {
	return &cluster{WithWatch: fake.NewClientBuilder().Build(), transactions: "transactions", records: "records"}
}

func TestRecordIsKeptForTheWholeRetentionTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const month = 720 * time.Hour
		c := inMemory()
		away, back := c.away(t, "away", ""), c.away(t, "back", "")
		ctx, stop := context.WithCancel(t.Context())
		down := &faults.Outage{Calls: faults.Calls{Times: 3}}
		p := c.sweeperWith(t, uncached{c.WithWatch}, month, down)
		var sweep sync.WaitGroup
		sweep.Go(func() { assert.NoError(t, p.SweepRecords(ctx)) })

		time.Sleep(month / 2)
		assert.Equal(t, 3, down.Hits())
		n := c.addNode(t, back, nil)
		time.Sleep(time.Hour)
		require.NoError(t, c.Delete(t.Context(), n)) // no event of it was recorded
		time.Sleep(month/2 - time.Hour - time.Minute)
		assert.NotNil(t, c.stored(t, away))
		time.Sleep(time.Hour)
		assert.Nil(t, c.stored(t, away))
		assert.NotNil(t, c.stored(t, back))
		time.Sleep(month/2 - time.Hour)
		assert.NotNil(t, c.stored(t, back), "its time counts anew")
		time.Sleep(2 * time.Hour)
		assert.Nil(t, c.stored(t, back))
		stop()
		sweep.Wait()
	})
}

func TestLockOfADeadProcessorPutsTheRemovalOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := inMemory()
		node := c.away(t, "node", longAgo)
		dead := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.transactions, Name: node}}
		dead.Spec.HolderIdentity, dead.Spec.LeaseDurationSeconds = new("dead"), new(int32(5))
		dead.Spec.RenewTime = new(metav1.NowMicro())
		require.NoError(t, c.Create(t.Context(), dead))
		p := c.sweeper(t)
		require.NoError(t, p.SweepRecordsOnce(t.Context(), start))
		assert.NotNil(t, c.stored(t, node))
		time.Sleep(nodelock.LeaseDuration)
		require.NoError(t, p.SweepRecordsOnce(t.Context(), start))
		assert.Nil(t, c.stored(t, node))
	})
}
