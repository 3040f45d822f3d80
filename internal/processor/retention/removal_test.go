package retention_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/processor/retention/removal"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// removes selects the write of the floor.
func removes() faults.Calls {
	return faults.Calls{Verb: faults.Update, Kind: "ConfigMap", Times: 1}
}

// recheck selects the given number of reads of a node after the first, or all of them if times is
// zero. The sweep itself lists all nodes, in as many pages as the nodes of other tests fill.
func recheck(node string, times int) faults.Calls {
	return faults.Calls{Verb: faults.List, Kind: "Node", Name: node, Skip: 1, Times: times}
}

// returning makes a node return at the moment at which its record is removed.
func (c *cluster) returning(t *testing.T, node string) *faults.Race {
	t.Helper()
	return &faults.Race{
		Calls: faults.Calls{Verb: faults.Update, Kind: "ConfigMap", Times: 1},
		First: func(context.Context) { c.addNode(t, node, set{"rack": "new"}) },
	}
}

func TestExpiredRecordIsKeptIfALiveReadFindsAReason(t *testing.T) {
	t.Parallel()
	create := func(obj func(c *cluster, node string) client.Object) func(context.Context, *cluster, string) error {
		return func(ctx context.Context, c *cluster, node string) error { return c.Create(ctx, obj(c, node)) }
	}
	live := create(func(_ *cluster, node string) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	})
	queued := create(func(c *cluster, node string) client.Object {
		return event(txn.Deleted, node, "a", "10").ConfigMap(c.transactions)
	})
	lock := faults.Calls{Verb: faults.Create, Kind: "Lease", Times: 1}
	for name, tc := range map[string]struct {
		atRemoval bool // false: when the lock is taken
		happen    func(ctx context.Context, c *cluster, node string) error
	}{
		"the node is back":   {false, live},
		"an event is queued": {false, queued},
		"a malformed event is queued": {false, create(func(c *cluster, node string) client.Object {
			cm := event(txn.Deleted, node, "a", "10").ConfigMap(c.transactions)
			cm.Data = nil
			return cm
		})},
		"the node is back at the last moment":   {true, live},
		"an event is queued at the last moment": {true, queued},
		"the record is written": {true, func(ctx context.Context, c *cluster, node string) error {
			return c.Update(ctx, record.Record{Node: node, Revision: revision.MustParse("10")}.ConfigMap(c.records))
		}},
		"the record is created again": {true, func(ctx context.Context, c *cluster, node string) error {
			cm := record.Record{Node: node, Revision: revision.MustParse("10")}.ConfigMap(c.records)
			return errors.Join(c.Delete(ctx, cm.DeepCopy()), c.Create(ctx, cm))
		}},
		"another works for the node": {false, create(func(c *cluster, node string) client.Object {
			held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.transactions, Name: node}}
			held.Spec.HolderIdentity, held.Spec.LeaseDurationSeconds = new("other"), new(int32(5))
			held.Spec.RenewTime = new(metav1.NowMicro())
			return held
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.expired(t, "node")
			f := &faults.Race{First: func(ctx context.Context) { assert.NoError(t, tc.happen(ctx, c, node)) }}
			f.Verb, f.Kind, f.Namespace, f.Name, f.Times = lock.Verb, lock.Kind, c.transactions, node, 1
			if tc.atRemoval {
				f.Verb, f.Kind, f.Namespace = faults.Update, "ConfigMap", c.records
			}
			require.NoError(t, c.sweeper(hour, f).Sweep(t.Context(), start))
			assert.Equal(t, 1, f.Hits())
			c.kept(t, node)
			assert.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})))
		})
	}
}

// No write can be conditional on the absence of a Node, so the record is removed and then restored.
func TestNodeThatReturnsWhileItsRecordIsRemovedGetsItsLabels(t *testing.T) {
	t.Parallel()
	type calls = faults.Calls
	type hits interface {
		faults.Fault
		Hits() int
	}
	for name, follows := range map[string]func(node string) hits{
		"only that":                      func(string) hits { return &faults.Log{} },
		"the answer is lost too":         func(string) hits { return &faults.LostAnswer{Calls: removes()} },
		"an outage follows":              func(node string) hits { return &faults.Outage{Calls: recheck(node, 3)} },
		"a right is missing for a while": func(node string) hits { return &faults.MissingRight{Calls: recheck(node, 3)} },
		"it is not restored at first": func(string) hits {
			return &faults.Outage{Calls: calls{Verb: faults.Update, Kind: "ConfigMap", Skip: 1, Times: 2}}
		},
		"the answer to that is lost": func(string) hits {
			return &faults.LostAnswer{Calls: calls{Verb: faults.Update, Kind: "ConfigMap", Skip: 1, Times: 1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.expired(t, "node")
			after := follows(node)
			before := c.stored(t, node)
			before.Annotations["example.com/note"] = "of a user"
			require.NoError(t, c.Update(t.Context(), before))
			removed := &faults.Log{Calls: removes()}
			_ = c.sweeper(hour, c.returning(t, node), removed, after).Sweep(t.Context(), start) // its error is tested elsewhere

			assert.Positive(t, after.Hits())
			assert.Len(t, removed.Entries(), 1)
			r, kept := c.kept(t, node)
			assert.Equal(t, before.Data, kept.Data)
			assert.Equal(t, "of a user", kept.Annotations["example.com/note"])
			assert.NotContains(t, kept.Annotations, record.AwaySinceAnnotation)
			n := &corev1.Node{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: node}, n))
			live := &nodeview.Node{UID: n.UID, Revision: revision.Of(n.ResourceVersion), Labels: n.Labels}
			d := preserve.Decide(txn.Transaction{Type: txn.Added, Node: node, UID: n.UID, Revision: live.Revision, Labels: n.Labels}, r, live, labels.Policy{Mode: labels.Replace})
			assert.Equal(t, set{"rack": "r7"}, d.Labels)
		})
	}
}

func TestOutageAfterTheRemovalIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := inMemory()
		node := c.expired(t, "node")
		rechecks := &faults.Outage{Calls: recheck(node, 0)}
		renewals := &faults.Outage{Calls: faults.Calls{Verb: faults.Update, Kind: "Lease", Namespace: c.transactions}}
		time.AfterFunc(time.Minute, rechecks.End) // the lock expires long before
		r := c.sweeper(hour, c.returning(t, node), rechecks, renewals)
		var repeated []string
		r.Remover.Repeating = func(_ context.Context, node string, err error) {
			assert.Error(t, err)
			repeated = append(repeated, node)
		}
		require.NoError(t, r.Sweep(t.Context(), start))
		assert.Positive(t, renewals.Hits())
		assert.Equal(t, []string{node}, repeated, "it is reported once")
		c.kept(t, node)
	})
}

func TestShutdownWaitsForTheSecondCheck(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.expired(t, "node")
	ctx, end := context.WithCancel(t.Context())
	race := &faults.Race{Calls: recheck(node, 1), First: func(context.Context) { end() }}
	require.NoError(t, c.sweeper(hour, c.returning(t, node), race).Sweep(ctx, start))
	assert.Equal(t, 1, race.Hits())
	c.kept(t, node)
}

func TestSecondCheckEndsAfterAShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := inMemory()
		rechecks := &faults.Outage{Calls: recheck(c.expired(t, "node"), 0)}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		began := time.Now()
		require.ErrorContains(t, c.sweeper(hour, rechecks).Sweep(ctx, start), "rechecking node")
		assert.Less(t, time.Since(began), time.Minute+2*time.Second)
	})
}

// The lock has expired at that moment, and another processor has applied the node's event.
func TestRecordThatTheNodeGotSinceIsNotReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.expired(t, "node")
	saved := &faults.Race{Calls: faults.Calls{Verb: faults.Update, Kind: "ConfigMap", Skip: 1, Times: 1}, First: func(ctx context.Context) {
		cm := record.Record{Node: node, Labels: set{"rack": "new"}, Revision: revision.MustParse("20"), Source: "b"}.ConfigMap(c.records)
		assert.NoError(t, c.Update(ctx, cm))
	}}
	require.NoError(t, c.sweeper(hour, c.returning(t, node), saved).Sweep(t.Context(), start))
	assert.Equal(t, 1, saved.Hits())
	r, _ := c.kept(t, node)
	assert.Equal(t, "20", r.Revision.String())
}

// A user forgets the node while the sweep checks it. That removal is not undone.
func TestRecordForgottenByAUserIsNotRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.expired(t, "node")
	forgotten := &faults.Race{Calls: removes(), First: func(ctx context.Context) {
		cm := preserve.Forgotten(node, nil, nil, revision.MustParse("12")).ConfigMap(c.records)
		assert.NoError(t, c.Update(ctx, cm))
		c.addNode(t, node, nil)
	}}
	require.NoError(t, c.sweeper(hour, forgotten).Sweep(t.Context(), start))
	assert.Equal(t, 1, forgotten.Hits())
	c.assertForgotten(t, node)
}

func TestCheckReportsWhatRemoveWouldDo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	away, live, forgotten := c.away(t, "away", ""), c.away(t, "live", ""), c.away(t, "forgotten", "")
	c.addNode(t, live, nil)
	before := c.stored(t, forgotten)
	require.NoError(t, c.Update(t.Context(), preserve.Forgotten(forgotten, nil, nil, revision.MustParse("12")).ConfigMap(c.records)))
	remover := c.sweeper(hour).Remover
	for cm, want := range map[*corev1.ConfigMap]removal.Outcome{
		c.stored(t, away): removal.Removed, c.stored(t, live): removal.Present, before: removal.Gone,
	} {
		got, err := remover.Check(t.Context(), cm)
		require.NoError(t, err)
		assert.Equal(t, want, got, cm.Name)
	}
	c.kept(t, away)
	c.kept(t, live)
}

// Nodes that are long absent according to the cache have been written since.
func TestStaleCacheRemovesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	expired, noted := c.expired(t, "expired"), c.away(t, "noted", "")
	behind := &frozenList{Reader: c.WithWatch}
	require.NoError(t, c.List(t.Context(), &behind.records, client.InNamespace(c.records)))
	want := map[string]string{}
	for _, node := range []string{expired, noted} {
		cm := record.Record{Node: node, Revision: revision.MustParse("10"), Source: "b"}.ConfigMap(c.records)
		require.NoError(t, c.Update(t.Context(), cm))
		want[node] = cm.ResourceVersion
	}
	sweepFrom(t, c.sweeperWith(behind, hour), start, start.Add(3*hour))
	for node, version := range want {
		assert.Equal(t, version, c.stored(t, node).ResourceVersion)
	}
}

// frozenList is a cache with a stale list of records.
type frozenList struct {
	client.Reader
	records corev1.ConfigMapList
}

func (f *frozenList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	f.records.DeepCopyInto(list.(*corev1.ConfigMapList))
	return nil
}

func TestLockOfADeadProcessorPutsTheRemovalOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := inMemory()
		node := c.expired(t, "node")
		dead := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.transactions, Name: node}}
		dead.Spec.HolderIdentity, dead.Spec.LeaseDurationSeconds = new("dead"), new(int32(5))
		dead.Spec.RenewTime = new(metav1.NowMicro())
		require.NoError(t, c.Create(t.Context(), dead))
		r := c.sweeper(hour)
		require.NoError(t, r.Sweep(t.Context(), start))
		c.kept(t, node)
		time.Sleep(nodelock.LeaseDuration)
		require.NoError(t, r.Sweep(t.Context(), start))
		c.assertForgotten(t, node)
	})
}
