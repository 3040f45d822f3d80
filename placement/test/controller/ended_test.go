package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/controller"
)

// TestIncarnationsThatEndedWhileTheControllerWasAway: the Lease is used by later incarnations. It
// still proves that the first one has ended, or its work would wait for two hours.
func TestIncarnationsThatEndedWhileTheControllerWasAway(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(*pod){"which end": (*pod).leave, "one of which works": func(*pod) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			p := w.pod("w-0", time.Hour)
			w.queue("orders", 2)
			w.await("orders", "Ready", "Ready")
			w.stop()
			p.leave()
			w.join("w-0", time.Hour).leave()
			w.join("w-0", time.Hour).leave()
			last(w.join("w-0", time.Hour))
			w.join("w-1", long)
			w.start("")
			s := w.await("orders", "Acknowledged", "Acknowledged")
			for i := range s.Placement {
				assert.NotEqual(t, p.incarnation, s.Placement[i].Incarnation)
			}
		})
	}
}

// isRemoved reports whether neither a Lease nor a contract of a pod is there.
func (w *world) isRemoved(t require.TestingT, name string) bool {
	for _, o := range []client.Object{&coordinationv1.Lease{ObjectMeta: w.meta(name)}, &corev1.ConfigMap{ObjectMeta: w.meta(name)}} {
		err := w.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
			return false
		}
	}
	return true
}

// TestContractThatShowsWorkIsKept: a status that is malformed names no pod.
func TestContractThatShowsWorkIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(p *controller.Pool) { p.KeepEnded = 2 * time.Second })
	works := w.pod("w-0", long)
	q := w.queue("orders", 2)
	w.await("orders", "Ready", "Ready")
	w.patchStatus(q, `{"status":{"decision":-1}}`)
	w.patch(works.lease(t), `{"metadata":{"labels":{%q:null}}}`, contract.PoolLabel)
	w.pod("gone", long).leave()
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.True(t, w.isRemoved(t, "gone")) }, patience, period)
	assert.Equal(t, []int32{0, 1}, listed(t, works, q.GetUID()))

	// Once its resources are gone and its Lease is deleted, it is not needed any longer.
	w.stop()
	require.NoError(t, w.Delete(t.Context(), q))
	w.start("", func(p *controller.Pool) { p.KeepEnded = 2 * time.Second })
	works.stop()
	require.NoError(t, w.Delete(t.Context(), works.lease(t)))
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.True(t, w.isRemoved(t, "w-0")) }, patience, period)
}

func TestLeasesAndContractsOfEndedPodsAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "statefulSet: w, patience: 0s", func(p *controller.Pool) { p.KeepEnded = 2 * time.Second })
	w.statefulSet(2)
	works, returns, marked, gone, lost := w.pod("w-0", long), w.pod("w-1", long), w.pod("marked", long), w.pod("gone", long), w.pod("lost", short)
	w.queue("orders", 5)
	w.await("orders", "Ready", "Ready")
	w.patch(marked.lease(t), `{"metadata":{"annotations":{%q:"true"}}}`, contract.UnschedulableAnnotation)
	for _, p := range []*pod{returns, marked, gone} {
		p.leave()
	}
	lost.stop()
	require.NoError(t, w.Delete(t.Context(), lost.lease(t)))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.True(t, w.isRemoved(t, "gone"))
		assert.True(t, w.isRemoved(t, "lost"))
	}, patience, period)
	s := w.await("orders", "Ready", "Ready")
	assert.Len(t, owners(t, &s), 5)
	for _, p := range []*pod{works, returns, marked} {
		assert.False(t, w.isRemoved(t, p.name), p.name)
	}
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="open"}`: 1, `pods{pool="worker",state="ended"}`: 2})

	again := w.pod("gone", long) // a pod of that name
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.NotEmpty(t, contractOf(t, again).Entries) }, patience, period)
	w.await("orders", "Ready", "Ready")
}
