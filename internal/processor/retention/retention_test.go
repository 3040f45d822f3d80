package retention_test

import (
	"context"
	"fmt"
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

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

func TestRecordIsRemovedWhenItsNodeStayedAwayForTheRetentionTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	r := c.sweeper(hour)
	require.NoError(t, r.Sweep(t.Context(), start))
	assert.Equal(t, "2026-11-21T03:14:15Z", c.stored(t, node).Annotations[record.AwaySinceAnnotation])
	noted := c.stored(t, node).ResourceVersion
	sweepFrom(t, r, start, start.Add(hour-time.Second))
	assert.Equal(t, noted, c.stored(t, node).ResourceVersion, "nothing is written while it waits")
	require.NoError(t, r.Sweep(t.Context(), start.Add(hour)))
	c.assertForgotten(t, node)
	var locks coordinationv1.LeaseList
	require.NoError(t, c.List(t.Context(), &locks, client.InNamespace(c.transactions)))
	assert.Empty(t, locks.Items)
}

// A node may have been present while every processor was stopped, so its record must be kept for
// the full time after that.
func TestTimeWithoutSweepsDoesNotCount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	sweepFrom(t, c.sweeper(hour), start, start.Add(hour-10*time.Minute))
	c.addNode(t, node, nil)
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}))

	again := start.Add(10 * hour)
	r := c.sweeper(hour)
	sweepFrom(t, r, again, again.Add(hour-time.Second))
	c.kept(t, node)
	require.NoError(t, r.Sweep(t.Context(), again.Add(hour)))
	c.assertForgotten(t, node)
}

// The clock of one of two processors is ahead by more than the retention time.
func TestClockThatIsAheadRemovesNothing(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"it looks first": true, "it looks later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.away(t, "node", "")
			right, ahead := c.sweeper(hour), c.sweeper(hour)
			for i := range 30 {
				at := start.Add(time.Duration(i) * time.Minute)
				if first || i > 3 {
					require.NoError(t, ahead.Sweep(t.Context(), at.Add(40*24*hour)))
				}
				require.NoError(t, right.Sweep(t.Context(), at))
			}
			require.NoError(t, ahead.Sweep(t.Context(), start.Add(41*24*hour)))
			c.kept(t, node)
		})
	}
}

func TestRecordsOfLiveNodesAreNeverRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.observed(t, start.Add(-2*hour), start)
	r := c.sweeper(hour)
	all := []string{}
	for i := range 5 { // more than two pages
		node := c.away(t, fmt.Sprint("node-", i), longAgo)
		c.addNode(t, node, nil)
		all = append(all, node)
	}
	for range 2 {
		require.NoError(t, r.Sweep(t.Context(), start))
		for _, node := range all {
			_, cm := c.kept(t, node)
			assert.NotContains(t, cm.Annotations, record.AwaySinceAnnotation)
		}
	}
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: all[0]}}))
	sweepFrom(t, r, start, start.Add(hour-time.Second))
	c.kept(t, all[0])
}

func TestWhatIsNoRecordIsNeverRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.expired(t, "node")
	cm := c.stored(t, node)
	cm.Data["rack"] = "no legal value"
	require.NoError(t, c.Update(t.Context(), cm))
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.records, Name: "istio-ca-root-cert"}}
	require.NoError(t, c.Create(t.Context(), foreign))
	require.NoError(t, c.sweeper(hour).Sweep(t.Context(), start))
	assert.Equal(t, cm.ResourceVersion, c.stored(t, node).ResourceVersion)
	assert.Equal(t, foreign.ResourceVersion, c.stored(t, foreign.Name).ResourceVersion)
}

func TestNoteThatIsNoTimeCountsFromNow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "long ago")
	require.NoError(t, c.sweeper(hour).Sweep(t.Context(), start))
	assert.Equal(t, "2026-11-21T03:14:15Z", c.stored(t, node).Annotations[record.AwaySinceAnnotation])
}

// A wrong clock, or a user, makes a record stay for longer, never for a shorter time.
func TestNoteFromTheFutureIsAwaited(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "2026-11-22T03:14:15Z")
	noted := c.stored(t, node).ResourceVersion
	r := c.sweeper(hour)
	day := start.Add(24 * hour)
	for _, at := range []time.Time{start, start.Add(hour), day, day.Add(hour - time.Second)} {
		c.observed(t, start.Add(-hour), at)
		require.NoError(t, r.Sweep(t.Context(), at))
		assert.Equal(t, noted, c.stored(t, node).ResourceVersion)
	}
	require.NoError(t, r.Sweep(t.Context(), day.Add(hour)))
	c.assertForgotten(t, node)
}

func TestPartsOfASecondCount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	r := c.sweeper(hour)
	late := start.Add(time.Second - time.Millisecond)
	sweepFrom(t, r, late, late.Add(hour-time.Millisecond))
	c.kept(t, node)
	require.NoError(t, r.Sweep(t.Context(), late.Add(hour)))
	c.assertForgotten(t, node)
}

func TestSweepGoesOnAfterFaults(t *testing.T) {
	t.Parallel()
	type calls = faults.Calls
	for name, f := range map[string]interface {
		faults.Fault
		Hits() int
	}{
		"answer to the note lost":      &faults.LostAnswer{Calls: calls{Verb: faults.Patch, Kind: "ConfigMap", Times: 1}},
		"answer to the removal lost":   &faults.LostAnswer{Calls: calls{Verb: faults.Update, Kind: "ConfigMap", Times: 1}},
		"conflict of the note":         &faults.Conflict{Calls: calls{Verb: faults.Patch, Times: 1}},
		"conflict of the removal":      &faults.Conflict{Calls: calls{Verb: faults.Update, Kind: "ConfigMap", Times: 1}},
		"conflict of the look":         &faults.Conflict{Calls: calls{Verb: faults.Update, Kind: "Lease", Times: 1}},
		"answer to the first look":     &faults.LostAnswer{Calls: calls{Verb: faults.Create, Kind: "Lease", Times: 1}},
		"an outage at the begin of it": &faults.Outage{Calls: calls{Times: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.away(t, "node", "")
			r := c.sweeper(hour, f)
			for i := range 30 { // after an error a later sweep removes the record
				_ = r.Sweep(t.Context(), start.Add(time.Duration(i)*5*time.Minute))
			}
			assert.Positive(t, f.Hits())
			c.assertForgotten(t, node)
		})
	}
}

func TestNothingIsRemovedIfTheNodesCannotBeListed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.expired(t, "node")
	down := &faults.Outage{Calls: faults.Calls{Verb: faults.List, Kind: "Node"}}
	require.ErrorContains(t, c.sweeper(hour, down).Sweep(t.Context(), start), "listing the nodes")
	c.kept(t, node)
}

// The absence period of a node is stored, so it continues after a processor ends.
func TestAnotherProcessorGoesOnFromTheNote(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.away(t, "node", "")
	sweepFrom(t, c.sweeper(hour), start, start.Add(hour/2))
	sweepFrom(t, c.sweeper(hour), start.Add(hour/2+5*time.Minute), start.Add(hour-time.Second))
	c.kept(t, node)
	require.NoError(t, c.sweeper(hour).Sweep(t.Context(), start.Add(hour)))
	c.assertForgotten(t, node)
}

func TestTwoProcessorsSweepAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	expired, live := c.expired(t, "expired"), c.away(t, "live", longAgo)
	first := c.away(t, "first-seen", "")
	c.addNode(t, live, nil)
	var sweeps sync.WaitGroup
	for range 4 {
		r := c.sweeper(hour, &faults.Slow{Calls: faults.Calls{Verb: faults.Get}, Delay: 5 * time.Millisecond})
		sweeps.Go(func() {
			for range 3 {
				assert.NoError(t, r.Sweep(t.Context(), start))
			}
		})
	}
	sweeps.Wait()
	c.assertForgotten(t, expired)
	assert.NotContains(t, c.stored(t, live).Annotations, record.AwaySinceAnnotation)
	assert.Equal(t, "2026-11-21T03:14:15Z", c.stored(t, first).Annotations[record.AwaySinceAnnotation])
}

func TestFloorIsCollectedWhenNoEventFromBeforeCanCome(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	floors := map[string]*corev1.ConfigMap{}
	for name, at := range map[string]time.Time{"old": start.Add(-time.Minute), "new": start.Add(12 * hour), "live": start.Add(-time.Minute)} {
		cm := record.Record{Node: c.name(name), Revision: revision.MustParse("9"), Floor: true, SavedAt: at}.ConfigMap(c.records)
		require.NoError(t, c.Create(t.Context(), cm))
		floors[name] = cm
	}
	c.addNode(t, c.name("live"), nil)
	r := c.sweeper(hour)
	c.observed(t, start, start.Add(23*hour))
	require.NoError(t, r.Sweep(t.Context(), start.Add(23*hour)))
	assert.Equal(t, floors["old"].ResourceVersion, c.stored(t, c.name("old")).ResourceVersion)
	c.observed(t, start, start.Add(24*hour))
	require.NoError(t, r.Sweep(t.Context(), start.Add(24*hour)))
	assert.Nil(t, c.stored(t, c.name("old")))
	assert.NotNil(t, c.stored(t, c.name("new")))
	assert.NotNil(t, c.stored(t, c.name("live")), "its node may have no record yet")
}

func TestRecordIsKeptForTheWholeRetentionTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const month = 720 * time.Hour
		c := inMemory()
		away, back := c.away(t, "away", ""), c.away(t, "back", "")
		ctx, stop := context.WithCancel(t.Context())
		down := &faults.Outage{Calls: faults.Calls{Times: 3}}
		r := c.sweeper(month, down)
		var sweep sync.WaitGroup
		sweep.Go(func() { assert.NoError(t, r.Run(ctx)) })

		time.Sleep(month / 2)
		assert.Equal(t, 3, down.Hits())
		n := c.addNode(t, back, nil)
		time.Sleep(time.Hour)
		require.NoError(t, c.Delete(t.Context(), n)) // no event of it was recorded
		time.Sleep(month/2 - time.Hour - time.Minute)
		c.kept(t, away)
		time.Sleep(time.Hour)
		c.assertForgotten(t, away)
		c.kept(t, back)
		time.Sleep(month/2 - time.Hour)
		c.kept(t, back) // its absence period restarted
		assert.Nil(t, c.stored(t, away), "the floor is collected")
		time.Sleep(2 * time.Hour)
		c.assertForgotten(t, back)
		stop()
		sweep.Wait()
	})
}
