package controller

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/schedule"
)

// TestCorrectedTimeIsStored: another controller, whose clock is ahead, has stored since when the
// resource is not acknowledged. Ready must not be held for ten seconds by each process.
func TestCorrectedTimeIsStored(t *testing.T) {
	t.Parallel()
	r := parsed(t, `{"spec":{"partitions":0},"status":{"observedGeneration":1,"releasing":[{"podName":"w","incarnation":"a/1","indexes":"0"}]}}`)
	r.placed.Generation = 1
	v := &version[*resource]{uid: "q", parsed: r}
	p := &pass{loop: newLoop(nil, Pool{}, nil), now: time.Unix(1000, 1)}
	status := *r.status.DeepCopy()
	require.True(t, p.report(v, &status))
	*meta.FindStatusCondition(status.Conditions, ready.Ready) = metav1.Condition{Type: ready.Ready, Status: metav1.ConditionTrue, Reason: ready.Ready, ObservedGeneration: 1}
	meta.FindStatusCondition(status.Conditions, ready.Acknowledged).LastTransitionTime = metav1.Unix(1060, 0)
	r.status = *status.DeepCopy()
	require.True(t, p.report(v, &status), "the time is corrected")
	acknowledged := meta.FindStatusCondition(status.Conditions, ready.Acknowledged)
	assert.EqualValues(t, 1000, acknowledged.LastTransitionTime.Unix())
	assert.True(t, meta.IsStatusConditionTrue(status.Conditions, ready.Ready))
	acknowledged.LastTransitionTime = metav1.Unix(1000, 0) // as it is stored
	r.status = *status.DeepCopy()
	assert.False(t, p.report(v, &status), "it is stored")
}

// TestLateResourceIsAnnounced once it was not acknowledged for 30 seconds, however long it was not
// acknowledged for other reasons.
func TestLateResourceIsAnnounced(t *testing.T) {
	t.Parallel()
	events := record.NewFakeRecorder(10)
	l := newLoop(nil, Pool{}, nil)
	l.events = &reporter{events, flowcontrol.NewFakeAlwaysRateLimiter()}
	v := &version[*resource]{uid: "q", parsed: parsed(t, `{}`)}
	begin := time.Unix(1000, 0)
	at := func(after time.Duration, reason string) (due time.Duration) {
		p := &pass{loop: l, now: begin.Add(after)}
		p.announceLate(v, []metav1.Condition{{Type: ready.Acknowledged, Reason: reason, LastTransitionTime: metav1.NewTime(begin)}})
		return p.due
	}
	assert.Zero(t, at(0, ready.PodLost))
	assert.Equal(t, 30*time.Second, at(31*time.Second, ready.NotAcknowledged))
	assert.Equal(t, time.Second, at(60*time.Second, ready.NotAcknowledged))
	assert.Empty(t, events.Events)
	assert.Zero(t, at(61*time.Second, ready.NotAcknowledged))
	assert.Len(t, events.Events, 1)
	assert.Zero(t, at(62*time.Second, ready.NotAcknowledged))
	assert.Zero(t, at(63*time.Second, ready.HandingOver))
	assert.Equal(t, 30*time.Second, at(100*time.Second, ready.NotAcknowledged))
	assert.Len(t, events.Events, 1)
}

// TestRoomIsReservedForWhatIsNotDecided: pods work on it all the same.
func TestRoomIsReservedForWhatIsNotDecided(t *testing.T) {
	t.Parallel()
	heavy := parsed(t, `{"spec":{"weight":3},"status":"x"}`)
	require.Error(t, heavy.malformed)
	usable := parsed(t, `{}`)
	for name, tc := range map[string]struct{ own, pool, want int32 }{"no limit": {0, 0, 0}, "own": {10, 5, 3}, "pool": {0, 9, 2}, "nothing left": {7, 0, -1}, "too little": {5, 0, -1}} {
		p := &pass{loop: newLoop(nil, Pool{Capacity: tc.pool}, nil), byUID: map[types.UID]*version[*resource]{"heavy": {parsed: heavy}, "usable": {parsed: usable}}}
		p.gone["gone"], p.maxRoom = true, 10000
		p.pods = []schedule.Pod{{Name: "w-0", Capacity: tc.own, Room: 10000}, {Name: "w-1", Capacity: tc.own, Room: 10000}}
		var entries []contract.Entry
		for _, uid := range []types.UID{"gone", "heavy", "missing", "usable"} {
			entries = append(entries, contract.Entry{Reference: contract.Reference{UID: uid}, Replicas: map[int32]int64{0: 1, 1: 1}})
		}
		entries[2].Replicas = map[int32]int64{5: 1}
		p.contracts = map[string]*version[*stored]{"w-0": {parsed: &stored{contract: contract.Contract{Entries: entries}}}}
		p.reserve()
		assert.Equal(t, tc.want, p.pods[0].Capacity, name)
		assert.Less(t, p.pods[0].Room, 10000-300, name)
		assert.Equal(t, schedule.Pod{Name: "w-1", Capacity: tc.own, Room: 10000}, p.pods[1], name)
	}
}

// TestNumbersAloneWait: when work is distributed, pods acknowledge one after the other, and the
// verdict follows soon.
func TestNumbersAloneWait(t *testing.T) {
	t.Parallel()
	l, written := newLoop(nil, Pool{}, nil), time.Unix(1000, 0)
	v := &version[*resource]{uid: "q", parsed: parsed(t, `{"status":{"decision":7}}`)}
	next := placement.Status{Decision: 7, ReadyVReplicas: 1}
	after := func(d time.Duration, next placement.Status) (mustWrite bool, due time.Duration) {
		p := &pass{loop: l, now: written.Add(d)}
		return p.mustWrite(v, next), p.due
	}
	must, _ := after(0, next)
	assert.True(t, must, "a new leader knows of no write")
	l.verdicts["q"] = newVerdict(&v.parsed.status, written)
	must, due := after(300*time.Millisecond, next)
	assert.False(t, must)
	assert.Equal(t, 700*time.Millisecond, due)
	must, _ = after(time.Second, next)
	assert.True(t, must)
	l.granted = written.Add(800 * time.Millisecond)
	must, due = after(time.Second, next)
	assert.False(t, must, "contracts were written")
	assert.Equal(t, 800*time.Millisecond, due)
	l.granted = written.Add(10 * time.Second)
	must, _ = after(10*time.Second, next)
	assert.True(t, must, "contracts are written all the time")
	next.ObservedGeneration = 1
	must, _ = after(300*time.Millisecond, next)
	assert.True(t, must, "another verdict")
}

// TestDecisionThatStaysIsTheSame as another one that is made.
func TestDecisionThatStaysIsTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	shares := func(most int) (all []placement.Placement) {
		for range r.IntN(most) {
			var set schedule.Set
			for index := range int32(4) {
				if r.IntN(2) == 0 {
					set = append(set, index)
				}
			}
			pod := strconv.Itoa(r.IntN(2))
			all = append(all, placement.Placement{PodName: pod, Incarnation: pod + "/" + strconv.Itoa(r.IntN(3)/2), Indexes: set.String(), Since: 1})
		}
		return all
	}
	stays := 0
	for range 4000 {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"partitions": r.Int64N(5)}}}
		u.SetUID("q")
		status := placement.Status{Decision: 7, Placeable: placement.Placeable{Placement: shares(4)}}
		if r.IntN(4) == 0 {
			status.Releasing = shares(2)
		}
		u, err := parser(queueKind, 100)(u).withStatus(&status)
		require.NoError(t, err)
		q := parser(queueKind, 100)(u)
		p := &pass{loop: newLoop(nil, Pool{}, nil), highest: map[types.UID]int64{"q": 6 + r.Int64N(3)}, states: map[string]schedule.State{}, members: map[string]*version[*member]{}, maxRoom: contract.MaxBytes}
		for _, pod := range []string{"0", "1"} {
			p.states[pod] = []schedule.State{schedule.Open, schedule.Closed}[r.IntN(2)]
			if r.IntN(4) > 0 {
				p.members[pod] = &version[*member]{parsed: &member{holder: pod + "/0"}}
			}
		}
		next := maps.Clone(q.numbers)
		if r.IntN(4) == 0 {
			next[strconv.Itoa(r.IntN(2))] += int32(r.IntN(2))
		}
		if !p.staysAsItIs(q, next) {
			continue
		}
		stays++
		anew, err := p.decideAnew(q, nil, next)
		require.NoError(t, err)
		require.True(t, isSameDecision(&anew, &q.status), "%+v %+v %v", q.status, anew, next)
	}
	assert.Greater(t, stays, 100)
}
