package ready_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/schedule"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// view returns a pod whose contract lists indexes of u for a decision, all acknowledged.
func view(incarnation string, decision int64, indexes ...int32) *contract.View {
	e := contract.Entry{Reference: contract.Reference{UID: "u"}, Generation: 2, Decision: decision, Changed: 5, Replicas: map[int32]int64{}}
	for _, index := range indexes {
		e.Replicas[index] = decision
	}
	return &contract.View{
		ConfigMap: "cm", Contract: contract.Contract{Incarnation: incarnation, Generation: 5, Entries: []contract.Entry{e}}, Digest: "d",
		Ack: contract.Ack{Incarnation: incarnation, Generation: 5, Digest: "d"},
	}
}

// working returns a resource with three virtual replicas on two pods, all of which are worked on.
func working() (*ready.Input, map[string]*ready.Pod) {
	pods := map[string]*ready.Pod{
		"A": {View: view("A", 4, 0, 1), Working: true},
		"B": {View: view("B", 4, 2), Working: true},
	}
	return &ready.Input{
		UID: "u", Generation: 2, Wanted: 3, Now: now,
		Status: placement.Status{
			Placeable: placement.Placeable{Placement: []placement.Placement{
				{PodName: "worker-0", Incarnation: "A", VReplicas: 2, Indexes: "0-1", Since: 4},
				{PodName: "worker-1", Incarnation: "B", VReplicas: 1, Indexes: "2", Since: 4},
			}},
			Decision: 4, ObservedGeneration: 2,
		},
		Pods: func(incarnation string) (ready.Pod, bool) {
			p, ok := pods[incarnation]
			if !ok {
				return ready.Pod{}, false
			}
			return *p, true
		},
	}, pods
}

func TestReady(t *testing.T) {
	t.Parallel()
	type pods = map[string]*ready.Pod
	for name, tc := range map[string]struct {
		change                         func(in *ready.Input, p pods)
		scheduled, acknowledged, ready string
		status                         metav1.ConditionStatus
		message                        string
		working                        int32
	}{
		"everything works": {
			change: func(*ready.Input, pods) {}, scheduled: ready.Placed, acknowledged: ready.Acknowledged, ready: ready.Ready, status: "True", working: 3,
		},
		"no decision yet": {
			change:    func(in *ready.Input, _ pods) { in.Status = placement.Status{} },
			scheduled: ready.NotDecided, acknowledged: ready.NotDecided, ready: ready.NotDecided, status: "Unknown",
		},
		"a new generation": {
			change:    func(in *ready.Input, _ pods) { in.Generation = 3 },
			scheduled: ready.Placed, acknowledged: ready.Acknowledged, ready: ready.GenerationNotObserved, status: "False", working: 3,
			message: "generation 2 of 3 is observed",
		},
		"the entry is of an older generation": {
			change:    func(in *ready.Input, _ pods) { in.Generation, in.Status.ObservedGeneration = 3, 3 },
			scheduled: ready.Placed, acknowledged: ready.NotAcknowledged, ready: ready.NotAcknowledged, status: "False", working: 3,
			message: "2 of 2 pods: worker-0 at 5 of 5, worker-1 at 5 of 5",
		},
		"the limit is lower": {
			change:    func(in *ready.Input, _ pods) { in.Limited = true },
			scheduled: ready.LimitedByMaxAllowedVReplicas, acknowledged: ready.Acknowledged, ready: ready.Ready, status: "True", working: 3,
		},
		"the number is invalid": {
			change:    func(in *ready.Input, _ pods) { in.Invalid = true },
			scheduled: ready.InvalidReplicas, acknowledged: ready.Acknowledged, ready: ready.InvalidReplicas, status: "False", working: 3,
			message: "the desired number of vreplicas is invalid; the last decision is kept",
		},
		"the entry does not fit": {
			change:    func(in *ready.Input, _ pods) { in.TooLarge = true },
			scheduled: ready.ContractTooLarge, acknowledged: ready.Acknowledged, ready: ready.ContractTooLarge, status: "False", working: 3,
			message: "its entry does not fit into a contract of 921600 bytes",
		},
		"some indexes have no pod": {
			change:    func(in *ready.Input, _ pods) { in.Wanted = 12 },
			scheduled: ready.NotEnoughCapacity, acknowledged: ready.NotAcknowledged, ready: ready.NotEnoughCapacity, status: "False", working: 3,
			message: "9 of 12 vreplicas have no pod",
		},
		"a pod is lost": {
			change:    func(_ *ready.Input, p pods) { p["B"].Working = false },
			scheduled: ready.Placed, acknowledged: ready.PodLost, ready: ready.PodLost, status: "False", working: 2, message: "1 of 2 pods: worker-1",
		},
		"an incarnation is releasing": {
			change: func(in *ready.Input, _ pods) {
				in.Status.Releasing = []placement.Placement{{PodName: "worker-9", Incarnation: "Z", Indexes: "2"}}
			},
			scheduled: ready.Placed, acknowledged: ready.HandingOver, ready: ready.HandingOver, status: "False", working: 3, message: "worker-9 releases 2",
		},
		"a pod is behind": {
			change: func(_ *ready.Input, p pods) {
				p["B"].View.Contract.Generation, p["B"].View.Contract.Entries[0].Changed = 7, 7
				p["B"].Behind = now.Add(-12 * time.Second)
			},
			scheduled: ready.Placed, acknowledged: ready.NotAcknowledged, ready: ready.NotAcknowledged, status: "False", working: 2,
			message: "1 of 2 pods: worker-1 at 5 of 7 for 12s",
		},
		"an index is missing": {
			change:    func(_ *ready.Input, p pods) { delete(p["A"].View.Contract.Entries[0].Replicas, 1) },
			scheduled: ready.Placed, acknowledged: ready.NotAcknowledged, ready: ready.NotAcknowledged, status: "False", working: 2,
			message: "1 of 2 pods: worker-0 at 5 of 5",
		},
		"a worker does not stop": {
			change:    func(_ *ready.Input, p pods) { p["A"].View.Ack.Stopping = map[types.UID]schedule.Set{"u": {1}} },
			scheduled: ready.Placed, acknowledged: ready.Stopping, ready: ready.Stopping, status: "False", working: 2,
			message: "1 of 2 pods: worker-0 still runs 1",
		},
		"a worker fails": {
			change:    func(_ *ready.Input, p pods) { p["B"].View.Ack.Failing = map[types.UID]string{"u": "refused"} },
			scheduled: ready.Placed, acknowledged: ready.Failing, ready: ready.Failing, status: "False", working: 2,
			message: "1 of 2 pods: worker-1: refused",
		},
		"a pod starts": {
			change: func(_ *ready.Input, p pods) {
				_, p["B"].View.Ack = contract.Adopt(p["B"].View.Ack)
			},
			scheduled: ready.Placed, acknowledged: ready.Failing, ready: ready.Failing, status: "False", working: 2,
			message: "1 of 2 pods: worker-1: starting",
		},
		"no pod is left": {
			change: func(in *ready.Input, _ pods) {
				in.Pods = func(string) (ready.Pod, bool) { return ready.Pod{}, false }
			},
			scheduled: ready.Placed, acknowledged: ready.PodLost, ready: ready.PodLost, status: "False", message: "2 of 2 pods: worker-0, worker-1",
		},
		"the status is malformed": {
			change:    func(in *ready.Input, _ pods) { in.Status.Placement[0].Indexes = "x" },
			scheduled: ready.NotEnoughCapacity, acknowledged: ready.NotAcknowledged, ready: ready.NotEnoughCapacity, status: "False", working: 1,
			message: "2 of 3 vreplicas have no pod",
		},
		"nothing is wanted": {
			change: func(in *ready.Input, _ pods) {
				in.Wanted, in.Status.Placement = 0, nil
			},
			scheduled: ready.Placed, acknowledged: ready.Acknowledged, ready: ready.Ready, status: "True",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, p := working()
			tc.change(in, p)
			conditions, count := ready.Of(in)
			reasons := map[string]string{}
			for _, c := range conditions {
				reasons[c.Type] = c.Reason
			}
			assert.Equal(t, map[string]string{ready.Scheduled: tc.scheduled, ready.Acknowledged: tc.acknowledged, ready.Ready: tc.ready}, reasons)
			whole := meta.FindStatusCondition(conditions, ready.Ready)
			assert.Equal(t, tc.status, whole.Status)
			assert.Equal(t, tc.message, whole.Message)
			assert.Equal(t, tc.working, count)
		})
	}
}

// TestF5NoPodWorksAfterAMove covers F5: Ready counts virtual replicas that work, not the ones that
// fail.
func TestF5NoPodWorksAfterAMove(t *testing.T) {
	t.Parallel()
	in, p := working()
	for _, pod := range p {
		pod.View.Contract.Entries = nil
	}
	conditions, count := ready.Of(in)
	assert.False(t, meta.IsStatusConditionTrue(conditions, ready.Ready))
	assert.Zero(t, count)
}

// TestF6NotReadyBeforeThePodWorks covers F6: a written contract alone does not make a resource
// ready.
func TestF6NotReadyBeforeThePodWorks(t *testing.T) {
	t.Parallel()
	in, p := working()
	p["A"].View.Ack = contract.Ack{}
	conditions, _ := ready.Of(in)
	assert.False(t, meta.IsStatusConditionTrue(conditions, ready.Ready))
}

// TestF22APodWithoutWorkDoesNotMatter covers F22: only owners count, not every pod of the pool.
func TestF22APodWithoutWorkDoesNotMatter(t *testing.T) {
	t.Parallel()
	in, p := working()
	p["C"] = &ready.Pod{View: &contract.View{}}
	conditions, _ := ready.Of(in)
	assert.True(t, meta.IsStatusConditionTrue(conditions, ready.Ready))
}

func TestHold(t *testing.T) {
	t.Parallel()
	in, p := working()
	good, _ := ready.Of(in)
	before, wait := ready.Hold(nil, good, now)
	require.Zero(t, wait)
	require.True(t, meta.IsStatusConditionTrue(before, ready.Ready))

	p["B"].Working = false
	lost, _ := ready.Of(in)
	held, wait := ready.Hold(before, lost, now.Add(time.Minute))
	assert.Equal(t, ready.Grace, wait)
	assert.True(t, meta.IsStatusConditionTrue(held, ready.Ready))
	assert.True(t, meta.IsStatusConditionFalse(held, ready.Acknowledged), "at once")

	still, wait := ready.Hold(held, lost, now.Add(time.Minute+4*time.Second))
	assert.Equal(t, 6*time.Second, wait)
	assert.True(t, meta.IsStatusConditionTrue(still, ready.Ready))

	late, wait := ready.Hold(still, lost, now.Add(time.Minute+ready.Grace))
	assert.Zero(t, wait)
	assert.True(t, meta.IsStatusConditionFalse(late, ready.Ready))

	again, _ := ready.Hold(late, lost, now.Add(2*time.Minute))
	assert.True(t, meta.IsStatusConditionFalse(again, ready.Ready), "only True is held")
	assert.Equal(t, meta.FindStatusCondition(late, ready.Ready).LastTransitionTime, meta.FindStatusCondition(again, ready.Ready).LastTransitionTime)

	in.Generation = 3
	changed, _ := ready.Of(in)
	fresh, wait := ready.Hold(before, changed, now.Add(time.Minute))
	assert.Zero(t, wait)
	assert.True(t, meta.IsStatusConditionFalse(fresh, ready.Ready), "a new generation takes effect at once")

	in, p = working()
	p["A"].View.Ack.Failing = map[types.UID]string{"u": "refused"}
	failing, _ := ready.Of(in)
	failed, _ := ready.Hold(before, failing, now.Add(time.Minute))
	assert.True(t, meta.IsStatusConditionFalse(failed, ready.Ready), "a failure is not a hand-over")
}

// The controller that stored that Acknowledged is False had a clock that is a minute ahead.
func TestHoldEndsByTheControllersOwnClock(t *testing.T) {
	t.Parallel()
	in, p := working()
	good, _ := ready.Of(in)
	ahead := now.Add(time.Minute)
	before, _ := ready.Hold(nil, good, ahead)
	p["B"].Working = false
	lost, _ := ready.Of(in)
	before, _ = ready.Hold(before, lost, ahead)
	require.True(t, meta.IsStatusConditionTrue(before, ready.Ready))

	held, wait := ready.Hold(before, lost, now)
	assert.Equal(t, ready.Grace, wait, "not 70 s")
	assert.True(t, meta.IsStatusConditionTrue(held, ready.Ready))
	assert.Equal(t, ahead, meta.FindStatusCondition(before, ready.Acknowledged).LastTransitionTime.Time, "an argument has changed")
	held, wait = ready.Hold(held, lost, now.Add(4*time.Second))
	assert.Equal(t, 6*time.Second, wait)
	held, wait = ready.Hold(held, lost, now.Add(ready.Grace))
	assert.Zero(t, wait)
	assert.True(t, meta.IsStatusConditionFalse(held, ready.Ready))
}

// The cost of a share grows with the number of its indexes, not with its square, and a message
// remains short whatever a pod acknowledges.
func TestReadyIsCheapAndShort(t *testing.T) {
	t.Parallel()
	const count = 200_000
	in, p := working()
	in.Wanted = count
	in.Status.Placement = in.Status.Placement[:1]
	in.Status.Placement[0].Indexes = "0-199999"
	replicas := p["A"].View.Contract.Entries[0].Replicas
	for index := range int32(count) {
		replicas[index] = 4
	}
	p["A"].View.Ack.Stopping = map[types.UID]schedule.Set{"u": {7}}
	conditions, works := ready.Of(in)
	assert.Equal(t, int32(count-1), works)
	assert.Equal(t, ready.Stopping, meta.FindStatusCondition(conditions, ready.Ready).Reason)

	p["A"].View.Ack.Stopping, p["A"].View.Ack.Failing = nil, map[types.UID]string{"u": strings.Repeat("ü", 100_000)}
	conditions, _ = ready.Of(in)
	assert.Less(t, len(meta.FindStatusCondition(conditions, ready.Ready).Message), 1000)

	for range 3 {
		in.Status.Placement = append(in.Status.Placement, placement.Placement{PodName: "x", Incarnation: "X", Indexes: "0-1048575"})
	}
	conditions, _ = ready.Of(in)
	assert.Equal(t, metav1.ConditionFalse, meta.FindStatusCondition(conditions, ready.Ready).Status)
}
