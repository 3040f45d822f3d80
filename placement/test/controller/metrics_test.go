package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

func TestMetricsAndEventsOfMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "capacity: 4")
	a, b := w.pod("w-0", long), w.pod("w-1", short)
	w.queue("orders", 6)
	w.await("orders", "Ready", "Ready")
	w.awaitMetrics(map[string]float64{
		`vreplicas{pool="worker",state="wanted"}`: 6, `vreplicas{pool="worker",state="placed"}`: 6, `vreplicas{pool="worker",state="working"}`: 6,
		`vreplicas{pool="worker",state="pending"}`: 0, `vreplicas{pool="worker",state="stopping"}`: 0, `vreplicas{pool="worker",state="failing"}`: 0,
		`pods{pool="worker",state="open"}`: 2, `pods{pool="worker",state="ended"}`: 0, `pods_wanted{pool="worker"}`: 2,
		`moves_total{pool="worker",reason="new"}`: 6, `not_acknowledged_seconds_max{pool="worker"}`: 0,
	})
	assert.Greater(t, w.scrape(t)[`placement_contract_bytes_max{pool="worker"}`], 100.0)
	assert.Positive(t, w.scrape(t)["placement_pass_seconds_count"])
	w.awaitEvent("Queue", "orders", "Placed", "Normal: 6 vreplicas on 2 pods")

	b.stop() // as if it were killed
	w.awaitEvent("Queue", "orders", "PodLost", "Warning: 1 of 2 pods: w-1")
	w.await("orders", "Scheduled", "NotEnoughCapacity")
	w.awaitEvent("Queue", "orders", "NotEnoughCapacity", "Warning: 2 of 6 vreplicas have no pod")
	w.awaitEvent("Queue", "orders", "Moved", "Normal: 1 from w-1 to w-0 (lost)")
	w.awaitMetrics(map[string]float64{
		`vreplicas{pool="worker",state="placed"}`: 4, `vreplicas{pool="worker",state="pending"}`: 2, `moves_total{pool="worker",reason="lost"}`: 1,
		`pods{pool="worker",state="open"}`: 1, `pods{pool="worker",state="ended"}`: 1,
	})

	c := w.pod("w-2", long)
	w.await("orders", "Ready", "Ready")
	w.patch(c.lease(t), `{"metadata":{"annotations":{%q:"true"}}}`, contract.UnschedulableAnnotation)
	w.pod("w-3", long)
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="leaving"}`: 1, `moves_total{pool="worker",reason="new"}`: 8})
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.GreaterOrEqual(t, w.scrape(t)[`placement_moves_total{pool="worker",reason="drain"}`], 2.0)
	}, patience, period)
	w.patch(c.lease(t), `{"metadata":{"annotations":{%q:null}}}`, contract.UnschedulableAnnotation)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Positive(t, w.scrape(t)[`placement_moves_total{pool="worker",reason="rebalance"}`])
	}, patience, period)
	w.await("orders", "Ready", "Ready")

	w.patch(a.lease(t), `{"metadata":{"annotations":{%q:"1"}}}`, contract.CapacityAnnotation)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Positive(t, w.scrape(t)[`placement_moves_total{pool="worker",reason="overcommit"}`])
	}, patience, period)
}

func TestMetricsAndEventsOfPodsThatDoNotAcknowledge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	a := w.pod("w-0", long, func(p *pod) { p.silent = true })
	q := w.queue("orders", 3)
	w.await("orders", "Ready", "NotAcknowledged")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Greater(t, w.scrape(t)[`placement_not_acknowledged_seconds_max{pool="worker"}`], 2.0)
	}, patience, period)
	w.awaitEvent("Queue", "orders", "NotAcknowledged", "Warning: 1 of 1 pods: w-0 at 0 of ")
	w.awaitEvent("Queue", "orders", "NotAcknowledged", " for ")

	a.set(func(p *pod) {
		p.silent = false
		p.change = func(_ *contract.Contract, answer *contract.Ack) {
			answer.Stopping = map[types.UID]schedule.Set{q.GetUID(): {7, 8}}
		}
	})
	w.await("orders", "Ready", "Stopping")
	w.awaitMetrics(map[string]float64{`vreplicas{pool="worker",state="stopping"}`: 2, `not_acknowledged_seconds_max{pool="worker"}`: 0})
	a.set(func(p *pod) {
		p.change = func(_ *contract.Contract, answer *contract.Ack) {
			answer.Failing = map[types.UID]string{q.GetUID(): "no broker"}
		}
	})
	s := w.await("orders", "Ready", "Failing")
	assert.Zero(t, s.ReadyVReplicas)
	w.awaitMetrics(map[string]float64{`vreplicas{pool="worker",state="failing"}`: 3, `vreplicas{pool="worker",state="working"}`: 0})
	a.set(func(p *pod) { p.change = nil })
	w.await("orders", "Ready", "Ready")
}

// TestConfigMapThatGetsItsLabelBack: the label was removed by mistake, and the event shows that.
func TestConfigMapThatGetsItsLabelBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	p := w.pod("w-0", long)
	w.queue("orders", 2)
	w.await("orders", "Ready", "Ready")
	cm := p.configMap(t)
	w.patch(cm, `{"metadata":{"labels":{%q:null}}}`, contract.PoolLabel)
	w.awaitEvent("ConfigMap", "w-0", "ForeignObject", "Warning: ")
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="leaving"}`: 1})
	w.patch(cm, `{"metadata":{"labels":{%q:%q}}}`, contract.PoolLabel, pool)
	w.awaitMetrics(map[string]float64{`pods{pool="worker",state="leaving"}`: 0, `pods{pool="worker",state="open"}`: 1})
	w.queue("mails", 1)
	w.await("mails", "Ready", "Ready")
	w.await("orders", "Ready", "Ready")
}

func TestForeignConfigMapIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	foreign := &corev1.ConfigMap{ObjectMeta: w.meta("w-0"), Data: map[string]string{"contract": "mine"}}
	require.NoError(t, w.Create(t.Context(), foreign))
	w.join("w-0", long)
	w.awaitEvent("ConfigMap", "w-0", "ForeignObject", "Warning: it has the name of a pod of the pool worker, but not the label placement.nodekeeper.dev/pool=worker")
	w.queue("mails", 2)
	w.await("mails", "Scheduled", "NotEnoughCapacity")
	w.pod("w-1", long)
	s := w.await("mails", "Ready", "Ready")
	assert.Equal(t, map[int32]string{0: "w-1", 1: "w-1"}, owners(t, &s))
	now := &corev1.ConfigMap{ObjectMeta: w.meta("w-0")}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(now), now))
	assert.Equal(t, foreign.ResourceVersion, now.ResourceVersion)
}
