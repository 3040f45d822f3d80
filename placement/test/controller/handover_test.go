package controller_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// listed returns the indexes that the contract of a pod lists of a resource.
func listed(t require.TestingT, p *pod, uid types.UID) []int32 {
	given := contractOf(t, p)
	if given.Incarnation != p.incarnation || given.Entry(uid) == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(given.Entry(uid).Replicas))
}

// awaitListed waits until the contract of a pod lists exactly these indexes.
func (w *world) awaitListed(p *pod, uid types.UID, indexes ...int32) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		assert.ElementsMatch(t, indexes, listed(t, p, uid), p.name)
	}, patience, period)
}

// awaitNoEntry waits until the contract of a pod does not have a resource: the contract is written
// after the status.
func (w *world) awaitNoEntry(p *pod, uid types.UID) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) { assert.Nil(t, contractOf(t, p).Entry(uid), p.name) }, patience, period)
}

// newMove starts a pool with a Queue of two on w-0, and makes them move to w-1.
func newMove(t *testing.T, keys string, before func(former, next *pod, uid types.UID)) (w *world, former, next *pod, uid types.UID) {
	t.Helper()
	w = newWorld(t, keys)
	former = w.pod("w-0", long)
	uid = w.queue("orders", 2).GetUID()
	w.await("orders", "Ready", "Ready")
	next = w.pod("w-1", long)
	before(former, next, uid)
	w.patch(former.lease(t), `{"metadata":{"annotations":{%q:"true"}}}`, contract.UnschedulableAnnotation)
	return w, former, next, uid
}

// TestExclusiveHandOver: the former owner loses its entry first, and the next one gets it once the
// former one has acknowledged that nothing is stopping.
func TestExclusiveHandOver(t *testing.T) {
	t.Parallel()
	w, former, next, uid := newMove(t, "rebalance: 0", func(former, _ *pod, uid types.UID) {
		former.set(func(p *pod) {
			p.change = func(c *contract.Contract, answer *contract.Ack) {
				if e := c.Entry(uid); e != nil && len(e.Replicas) == 0 {
					answer.Stopping = map[types.UID]schedule.Set{uid: {1}}
				}
			}
		})
	})
	w.awaitListed(next, uid, 0) // one stuck vreplica does not delay the other
	assert.Empty(t, listed(t, former, uid))
	s := w.await("orders", "Acknowledged", "HandingOver")
	require.Len(t, s.Releasing, 1)
	assert.Equal(t, "w-0 1", s.Releasing[0].PodName+" "+s.Releasing[0].Indexes)
	w.awaitMetrics(map[string]float64{`vreplicas{pool="worker",state="stopping"}`: 1})
	w.await("orders", "Ready", "HandingOver") // after ten seconds
	assert.Equal(t, []int32{0}, listed(t, next, uid))
	former.set(func(p *pod) { p.change = nil })
	w.awaitListed(next, uid, 0, 1)
	s = w.await("orders", "Ready", "Ready")
	given := contractOf(t, next)
	assert.Greater(t, given.Entry(uid).Replicas[1], given.Entry(uid).Replicas[0], "granted later")
	assert.LessOrEqual(t, given.Entry(uid).Replicas[1], s.Decision)
	w.awaitNoEntry(former, uid)
}

// TestOverlappingHandOver: the former owner keeps its entry until the next one works.
func TestOverlappingHandOver(t *testing.T) {
	t.Parallel()
	w, former, next, uid := newMove(t, "rebalance: 0, handover: Overlap", func(_, next *pod, _ types.UID) {
		next.set(func(p *pod) { p.silent = true })
	})
	w.awaitListed(next, uid, 0, 1)
	w.await("orders", "Ready", "HandingOver") // after ten seconds
	assert.Equal(t, []int32{0, 1}, listed(t, former, uid), "the owner has not acknowledged")
	next.set(func(p *pod) {
		p.silent = false
		p.change = func(_ *contract.Contract, answer *contract.Ack) {
			answer.Failing = map[types.UID]string{uid: "starting"}
		}
	})
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Contains(t, next.lease(t).Annotations[contract.AcknowledgedAnnotation], "starting")
	}, patience, period)
	w.queue("mails", 1) // causes passes
	w.await("mails", "Ready", "Ready")
	assert.Equal(t, []int32{0, 1}, listed(t, former, uid), "the owner does not work")
	next.set(func(p *pod) { p.change = nil })
	w.await("orders", "Ready", "Ready")
	w.awaitNoEntry(former, uid)
	assert.Equal(t, []int32{0, 1}, listed(t, next, uid))
}
