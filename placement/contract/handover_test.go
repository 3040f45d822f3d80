package contract_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

func noneEnded(string) bool { return false }

func share(pod, incarnation, indexes string, since int64) placement.Placement {
	set, _ := schedule.ParseSet(indexes)
	return placement.Placement{PodName: pod, Incarnation: incarnation, Indexes: indexes, VReplicas: int32(len(set)), Since: since}
}

// status returns a decision with the shares of a and b, and the releases.
func status(decision int64, owned, releasing []placement.Placement) placement.Status {
	return placement.Status{Placeable: placement.Placeable{Placement: owned}, Releasing: releasing, Decision: decision, ObservedGeneration: 1}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	type shares = []placement.Placement
	own := func(pod, incarnation string, indexes ...int32) contract.Share {
		return contract.Share{Pod: pod, Incarnation: incarnation, Indexes: indexes}
	}
	before := status(3, shares{share("a", "A", "0-1", 2), share("b", "B", "2", 3)}, nil)
	for name, tc := range map[string]struct {
		now   placement.Status
		want  []contract.Share
		ended string
		floor int64
		next  placement.Status
	}{
		"from nothing": {
			want: []contract.Share{own("b", "B", 1), own("a", "A", 0)},
			next: placement.Status{Placeable: placement.Placeable{Placement: shares{share("a", "A", "0", 1), share("b", "B", "1", 1)}}, Decision: 1},
		},
		"an index moves": {
			now: before, want: []contract.Share{own("a", "A", 0), own("b", "B", 1, 2)},
			next: status(4, shares{share("a", "A", "0", 4), share("b", "B", "1-2", 4)}, shares{share("a", "A", "1", 4)}),
		},
		"the number is above what contracts have": {
			now: before, want: []contract.Share{own("a", "A", 0, 1), own("b", "B")}, floor: 17,
			next: status(18, shares{share("a", "A", "0-1", 18)}, shares{share("b", "B", "2", 18)}),
		},
		"another incarnation of the same pod": {
			now: before, want: []contract.Share{own("a", "A2", 0, 1), own("b", "B", 2)},
			next: status(4, shares{share("a", "A2", "0-1", 4), share("b", "B", "2", 3)}, shares{share("a", "A", "0-1", 4)}),
		},
		"an ended incarnation releases nothing": {
			now: before, want: []contract.Share{own("b", "B", 0, 1, 2)}, ended: "A",
			next: status(4, shares{share("b", "B", "0-2", 4)}, nil),
		},
		"an ended incarnation gets nothing": {
			now: before, want: []contract.Share{own("a", "A", 0, 1, 2)}, ended: "A",
			next: status(4, shares{share("a", "A", "0-1", 2)}, shares{share("b", "B", "2", 4)}),
		},
		"the releasing incarnation gets it back": {
			now:  status(4, shares{share("b", "B", "1", 4)}, shares{share("a", "A", "1", 4)}),
			want: []contract.Share{own("a", "A", 1)},
			next: status(5, shares{share("a", "A", "1", 5)}, shares{share("b", "B", "1", 5)}),
		},
		"a status that a user has edited": {
			now:  status(4, shares{share("a", "A", "0", 4), share("b", "B", "0", 4)}, nil),
			want: []contract.Share{own("a", "A", 0)},
			next: status(5, shares{share("a", "A", "0", 4)}, shares{share("b", "B", "0", 5)}),
		},
		"a share without an incarnation grants nothing": {
			now:  placement.Status{Placeable: placement.Placeable{Placement: shares{{PodName: "a", VReplicas: 2}}}},
			want: []contract.Share{own("b", "B", 0)},
			next: placement.Status{Placeable: placement.Placeable{Placement: shares{share("b", "B", "0", 1)}}, Decision: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, changed, err := contract.Decide(tc.now, tc.want, func(i string) bool { return i == tc.ended }, contract.Floor{Contracts: tc.floor})
			require.NoError(t, err)
			assert.True(t, changed)
			assert.Equal(t, tc.next, next)
			again, changed, err := contract.Decide(next, tc.want, func(i string) bool { return i == tc.ended }, contract.Floor{Contracts: tc.floor})
			require.NoError(t, err)
			assert.False(t, changed, "without a change, nothing is written")
			assert.Equal(t, next, again)
		})
	}
	_, _, err := contract.Decide(status(1, shares{{PodName: "a", Incarnation: "A", Indexes: "x"}}, nil), nil, noneEnded, contract.Floor{})
	require.ErrorIs(t, err, schedule.ErrMalformedSet)
}

// world is a resource u with its pods, controlled by a test.
type world struct {
	t       *testing.T
	status  placement.Status
	views   map[string]*contract.View
	overlap bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, views: map[string]*contract.View{}}
}

func (w *world) decide(want ...contract.Share) {
	w.t.Helper()
	next, changed, err := contract.Decide(w.status, want, noneEnded, contract.Floor{})
	require.NoError(w.t, err)
	require.True(w.t, changed)
	w.status = next
}

func (w *world) placed() contract.Placed {
	return contract.Placed{Reference: reference("u"), Generation: 1, Of: 3, Status: w.status, Live: true}
}

func (w *world) input(incarnation string) *contract.Input {
	v := w.views[incarnation]
	if v == nil {
		v = &contract.View{ConfigMap: types.UID("cm-" + incarnation)}
		w.views[incarnation] = v
	}
	return &contract.Input{
		Incarnation: incarnation, View: v, Placed: []contract.Placed{w.placed()}, Overlap: w.overlap,
		Owners: func(i string) (*contract.View, bool) { v, ok := w.views[i]; return v, ok },
	}
}

// build stores the contract of an incarnation if it changes, and returns the indexes that it lists
// for u.
func (w *world) build(incarnation string) map[int32]int64 {
	w.t.Helper()
	plan := contract.Build(w.input(incarnation))
	v := w.views[incarnation]
	if plan.Action == contract.Update {
		*v = contract.View{ConfigMap: v.ConfigMap, Contract: plan.Contract, Digest: contract.Digest(plan.Contract.Encode()), Ack: v.Ack, Seen: v.Seen}
		v.Seen = v.Seen.With(v.ConfigMap, v.Contract.Generation, v.Digest)
	}
	if e := v.Contract.Entry("u"); e != nil {
		return e.Replicas
	}
	return nil
}

// acknowledge lets a pod carry out and acknowledge its contract.
func (w *world) acknowledge(incarnation string, stuck ...contract.Unit) {
	v := w.views[incarnation]
	running := map[contract.Unit]contract.Work{}
	for i := range v.Contract.Entries {
		for index, epoch := range v.Contract.Entries[i].Replicas {
			running[contract.Unit{UID: v.Contract.Entries[i].UID, Index: index}] = contract.Work{Epoch: epoch, Working: true}
		}
	}
	for _, u := range stuck {
		running[u] = contract.Work{Epoch: 1, Working: true}
	}
	v.Ack, _ = contract.Acknowledge(&v.Contract, v.Digest, running)
}

func (w *world) release() bool {
	w.t.Helper()
	next, changed, err := contract.Release(w.status, "u", func(i string) (*contract.View, bool) { v, ok := w.views[i]; return v, ok }, noneEnded, contract.Floor{})
	require.NoError(w.t, err)
	w.status = next
	return changed
}

func both(a, b schedule.Set) []contract.Share {
	return []contract.Share{{Pod: "a", Incarnation: "A", Indexes: a}, {Pod: "b", Incarnation: "B", Indexes: b}}
}

func TestExclusiveHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0, 1}, schedule.Set{2})...)
	assert.Equal(t, map[int32]int64{0: 1, 1: 1}, w.build("A"))
	assert.Equal(t, map[int32]int64{2: 1}, w.build("B"))
	w.acknowledge("A")
	w.acknowledge("B")

	w.decide(both(schedule.Set{0}, schedule.Set{1, 2})...)
	assert.Equal(t, map[int32]int64{2: 1}, w.build("B"), "A has not released it")
	assert.False(t, w.release(), "A has not read its contract yet")
	assert.Equal(t, map[int32]int64{0: 1}, w.build("A"), "the epoch of a kept index stays the same")
	assert.False(t, w.release(), "A has not acknowledged")
	w.acknowledge("A", contract.Unit{UID: "u", Index: 1})
	assert.False(t, w.release(), "its worker has not stopped yet")
	w.acknowledge("A")
	assert.True(t, w.release())
	assert.Empty(t, w.status.Releasing)
	assert.Equal(t, map[int32]int64{1: 3, 2: 1}, w.build("B"), "a higher epoch")
	generation := w.views["B"].Contract.Generation
	w.build("B")
	assert.Equal(t, generation, w.views["B"].Contract.Generation, "without a change, nothing is written")
}

func TestOverlappingHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.overlap = true
	w.decide(both(schedule.Set{0}, nil)...)
	w.build("A")
	w.acknowledge("A")
	w.decide(both(nil, schedule.Set{0})...)
	assert.Equal(t, map[int32]int64{0: 2}, w.build("B"), "at once")
	assert.Equal(t, map[int32]int64{0: 1}, w.build("A"), "goes on")
	w.acknowledge("A")
	assert.False(t, w.release(), "A still lists it")
	w.acknowledge("B")
	assert.Empty(t, w.build("A"), "B works")
	w.acknowledge("A")
	assert.True(t, w.release())
}

// TestF9ARecreatedContractIsNotTakenForTheOldOne covers F9: the generations of a recreated contract
// start over.
func TestF9ARecreatedContractIsNotTakenForTheOldOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, nil)...)
	w.build("A")
	w.acknowledge("A")
	v := w.views["A"]
	require.True(t, v.Known())
	*v = contract.View{ConfigMap: "new", Ack: v.Ack, Seen: v.Seen}
	w.decide(both(nil, schedule.Set{0})...)
	w.build("A")
	assert.Greater(t, v.Contract.Generation, v.Ack.Generation)
	assert.False(t, v.Known())
	assert.False(t, w.release(), "the acknowledgement refers to the deleted ConfigMap")

	behind := *v
	behind.Ack.Generation, behind.Ack.Digest = 40, "other"
	in := w.input("A")
	in.View = &behind
	plan := contract.Build(in)
	require.Equal(t, contract.Update, plan.Action, "an unknown acknowledgement is overtaken")
	assert.Equal(t, int64(41), plan.Contract.Generation)
	assert.Equal(t, int64(41), plan.Contract.Entries[0].Changed)
}

// TestF10AContractOfAnotherIncarnationIsNotFollowed covers F10: such a contract has no effect, even
// later.
func TestF10AContractOfAnotherIncarnationIsNotFollowed(t *testing.T) {
	t.Parallel()
	c := sample()
	assert.True(t, contract.Accepts("41f0/7c1e09b2", 42, &c))
	assert.False(t, contract.Accepts("41f0/7c1e09b2", 43, &c))
	assert.False(t, contract.Accepts("other", 0, &c))
	assert.False(t, contract.Accepts("", 0, &contract.Contract{Generation: 1}))
	in := &contract.Input{Incarnation: "B", View: &contract.View{ConfigMap: "cm", Contract: c}}
	plan := contract.Build(in)
	require.Equal(t, contract.Update, plan.Action)
	assert.Empty(t, plan.Contract.Entries)
}

// TestF11OneWriteForManyResources covers F11: a contract contains all entries of a pod.
func TestF11OneWriteForManyResources(t *testing.T) {
	t.Parallel()
	in := &contract.Input{Incarnation: "A", View: &contract.View{ConfigMap: "cm"}}
	for i := range 50 {
		in.Placed = append(in.Placed, contract.Placed{
			Reference: reference(strconv.Itoa(i)), Live: true,
			Status: status(1, []placement.Placement{share("a", "A", "0", 1)}, nil),
		})
	}
	plan := contract.Build(in)
	assert.Len(t, plan.Contract.Entries, 50)
	assert.Equal(t, int64(1), plan.Contract.Generation)
}

// TestF12AnErrorTakesNothingAway covers F12: an entry of unknown state is kept, and its decision is
// read.
func TestF12AnErrorTakesNothingAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, nil)...)
	w.build("A")
	in := w.input("A")
	in.Placed = nil
	plan := contract.Build(in)
	assert.Equal(t, contract.Nothing, plan.Action)
	assert.Equal(t, []types.UID{"u"}, plan.Read)

	broken := w.placed()
	broken.Status.Placement = []placement.Placement{{PodName: "a", Incarnation: "A", Indexes: "x"}}
	in.Placed = []contract.Placed{broken}
	assert.Equal(t, contract.Nothing, contract.Build(in).Action)
}

// TestF24WorkOnADeletedResourceStops covers F24: work ends once a live read shows that the
// resource is deleted.
func TestF24WorkOnADeletedResourceStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, nil)...)
	w.build("A")
	in := w.input("A")
	in.Placed = []contract.Placed{{Reference: reference("u"), Gone: true}}
	plan := contract.Build(in)
	require.Equal(t, contract.Update, plan.Action)
	assert.Empty(t, plan.Contract.Entries)
}

// TestF7NothingIsAcknowledgedBeforeItWorks covers F7: a pod that has read its contract and started
// its workers is not done yet.
func TestF7NothingIsAcknowledgedBeforeItWorks(t *testing.T) {
	t.Parallel()
	c := sample()
	_, done := contract.Acknowledge(&c, "d", nil)
	assert.False(t, done)
	running := map[contract.Unit]contract.Work{{UID: "u1", Index: 3}: {Epoch: 17}, {UID: "u1", Index: 7}: {Epoch: 12, Working: true}, {UID: "u1", Index: 10}: {Epoch: 9, Working: true}}
	a, done := contract.Acknowledge(&c, "d", running)
	assert.False(t, done)
	assert.True(t, a.Fails("u1"))
	running[contract.Unit{UID: "u1", Index: 3}] = contract.Work{Epoch: 17, Working: true}
	_, done = contract.Acknowledge(&c, "d", running)
	assert.True(t, done)
}

// TestF13WhatIsStuckDelaysNothingElse covers F13: stuck work is reported, and everything else is
// acknowledged.
func TestF13WhatIsStuckDelaysNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0, 1}, nil)...)
	w.build("A")
	w.acknowledge("A")
	w.decide(both(nil, schedule.Set{0, 1})...)
	w.build("A")
	w.acknowledge("A", contract.Unit{UID: "u", Index: 0})
	require.True(t, w.release())
	assert.Equal(t, "0", w.status.Releasing[0].Indexes)
	assert.Equal(t, map[int32]int64{1: 3}, w.build("B"))
}

// TestF14EachDecisionIsStored covers F14: the status contains the whole decision, even if some
// virtual replicas are pending.
func TestF14EachDecisionIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(contract.Share{Pod: "a", Incarnation: "A", Indexes: schedule.Set{0}})
	stored, err := json.Marshal(w.status)
	require.NoError(t, err)
	assert.JSONEq(t, `{"placements":[{"podName":"a","vreplicas":1,"incarnation":"A","indexes":"0","since":1}],"decision":1}`, string(stored))
}

// TestF17AContractIsNeverTooLarge covers F17: new entries wait, grown entries keep their payload,
// and removals apply.
func TestF17AContractIsNeverTooLarge(t *testing.T) {
	t.Parallel()
	placed := func(uid string, payload int) contract.Placed {
		text, err := json.Marshal(strings.Repeat("x", payload))
		require.NoError(t, err)
		return contract.Placed{Reference: reference(uid), Payload: text, Live: true, Generation: int64(payload), Status: status(1, []placement.Placement{share("a", "A", "0", 1)}, nil)}
	}
	in := &contract.Input{Incarnation: "A", View: &contract.View{ConfigMap: "cm"}, Most: 1500, Placed: []contract.Placed{placed("a", 300), placed("b", 300), placed("c", 500)}}
	plan := contract.Build(in)
	assert.Equal(t, []types.UID{"c"}, plan.TooLarge)
	assert.Len(t, plan.Contract.Entries, 2)
	assert.LessOrEqual(t, len(plan.Contract.Encode()), 1500)

	in.View = &contract.View{ConfigMap: "cm", Contract: plan.Contract}
	in.Placed = []contract.Placed{placed("a", 900), placed("b", 300)}
	plan = contract.Build(in)
	assert.Equal(t, []types.UID{"a"}, plan.TooLarge)
	assert.Equal(t, contract.Nothing, plan.Action, "the former payload is kept")

	in.Placed[1] = contract.Placed{Reference: reference("b"), Gone: true}
	plan = contract.Build(in)
	assert.Empty(t, plan.TooLarge)
	assert.Len(t, plan.Contract.Entries, 1)
	assert.Equal(t, int64(900), plan.Contract.Entries[0].Generation)
}

// TestLargeResourceKeepsNoneOut: a pod has a new incarnation, so all of its entries are new. They
// are in the order of their UIDs.
func TestLargeResourceKeepsNoneOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sizes    []int // of the payloads of a, b, c and so on
		former   int   // how many of them have entries with payloads of 100
		tooLarge []types.UID
		payloads []int
	}{
		"one that never fits":          {sizes: []int{100, 2000, 100, 100}, tooLarge: []types.UID{"b"}, payloads: []int{102, 102, 102}},
		"the largest":                  {sizes: []int{300, 700, 300, 200}, tooLarge: []types.UID{"b"}, payloads: []int{302, 302, 202}},
		"and nothing keeps its former": {sizes: []int{110, 2000, 100}, former: 1, tooLarge: []types.UID{"b"}, payloads: []int{112, 102}},
		"the one that has grown most":  {sizes: []int{110, 1500, 110}, former: 3, tooLarge: []types.UID{"b"}, payloads: []int{112, 102, 112}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := &contract.Input{Incarnation: "A", View: &contract.View{ConfigMap: "cm", Contract: contract.Contract{Incarnation: "A"}}, Most: 1700}
			for i, size := range tc.sizes {
				p := contract.Placed{Reference: reference(string(rune('a' + i))), Live: true, Status: status(1, []placement.Placement{share("a", "A", "0", 1)}, nil)}
				p.Payload = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
				in.Placed = append(in.Placed, p)
				if i < tc.former {
					in.View.Contract.Entries = append(in.View.Contract.Entries, contract.Entry{
						Reference: p.Reference, Decision: 1, Replicas: map[int32]int64{0: 1}, Payload: json.RawMessage(`"` + strings.Repeat("x", 100) + `"`),
					})
				}
			}
			plan := contract.Build(in)
			assert.Equal(t, tc.tooLarge, plan.TooLarge)
			assert.LessOrEqual(t, len(plan.Contract.Encode()), in.Most)
			var payloads []int
			for i := range plan.Contract.Entries {
				payloads = append(payloads, len(plan.Contract.Entries[i].Payload))
			}
			assert.Equal(t, tc.payloads, payloads)
		})
	}
}

func TestBytesIsAnUpperBound(t *testing.T) {
	t.Parallel()
	p := contract.Placed{Reference: reference("u"), Generation: 7, Of: 12, Payload: json.RawMessage(`{"a":1}`), Live: true}
	p.Status = status(9, []placement.Placement{share("a", "A", "0-11", 9)}, nil)
	in := &contract.Input{Incarnation: "A", View: &contract.View{ConfigMap: "cm"}, Placed: []contract.Placed{p}}
	empty := contract.Contract{Incarnation: "A"}
	c := contract.Build(in).Contract
	assert.LessOrEqual(t, len(c.Encode())-len(empty.Encode()), p.Bytes(12))
}

// A contract does not show which decisions it has been built from before.
func TestBuildWaitsForLiveDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, nil)...)
	in := w.input("A")
	in.Placed[0].Live = false
	plan := contract.Build(in)
	assert.Equal(t, []types.UID{"u"}, plan.Read)
	assert.Empty(t, plan.Contract.Entries)

	assert.Equal(t, contract.Create, contract.Build(&contract.Input{Incarnation: "A", View: &contract.View{}}).Action)
	assert.Equal(t, contract.Delete, contract.Build(&contract.Input{Incarnation: "A", View: &contract.View{ConfigMap: "cm", Unreadable: true}}).Action)
}

func TestApply(t *testing.T) {
	t.Parallel()
	c := sample()
	running := map[contract.Unit]contract.Work{
		{UID: "u1", Index: 3}: {Epoch: 17, Working: true},
		{UID: "u1", Index: 7}: {Epoch: 5, Working: true},
		{UID: "u9", Index: 0}: {Epoch: 1, Working: true},
	}
	stop, start := contract.Apply(&c, running)
	assert.Equal(t, []contract.Unit{{UID: "u1", Index: 7}, {UID: "u9", Index: 0}}, stop)
	assert.Equal(t, []contract.Unit{{UID: "u1", Index: 10}}, start)

	a, done := contract.Acknowledge(&c, "d", running)
	assert.False(t, done)
	assert.Equal(t, map[types.UID]schedule.Set{"u1": {7}, "u9": {0}}, a.Stopping)
	assert.Equal(t, map[types.UID]string{"u1": "starting"}, a.Failing)

	last, first := contract.Adopt(contract.Ack{Incarnation: "A", Generation: 43, Digest: "d", Stopping: a.Stopping})
	assert.Equal(t, int64(42), last)
	assert.Equal(t, contract.Ack{Incarnation: "A", Generation: 43, Digest: "d", Failing: map[types.UID]string{"*": "starting"}}, first)
	assert.True(t, first.Fails("u1"))
}
