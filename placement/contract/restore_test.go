package contract_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// rewound returns a world in which A has acknowledged a generation of the contract, and etcd was
// then restored to an earlier one. The controller has observed both.
func rewound(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, nil)...)
	w.build("A")
	stored, restored := w.status, *w.views["A"]
	w.decide(both(schedule.Set{0, 1}, nil)...)
	w.build("A")
	w.acknowledge("A")
	v := w.views["A"]
	require.True(t, v.Known())
	w.status = stored
	v.Contract, v.Digest = restored.Contract, restored.Digest
	v.Seen = v.Seen.With(v.ConfigMap, v.Contract.Generation, v.Digest)
	return w
}

func TestAnAcknowledgementFromBeforeARestoreIsUnknown(t *testing.T) {
	t.Parallel()
	w := rewound(t)
	v, share := w.views["A"], w.status.Placement[0]
	assert.False(t, v.Known())
	assert.False(t, v.Acknowledged("u", &share), "the pod works by a contract that no longer exists")
	assert.Empty(t, v.Working("u", &share))
	lost := v.Ack.Generation
	w.build("A")
	assert.Greater(t, v.Contract.Generation, lost, "the pod would not follow a lower generation")
	assert.Equal(t, v.Contract.Generation, v.Contract.Entries[0].Changed)
	w.acknowledge("A")
	assert.True(t, v.Acknowledged("u", &share))
}

func TestVersionsBelowTheLatestStayKnown(t *testing.T) {
	t.Parallel()
	var seen contract.Versions
	for generation, digest := range []string{"a", "b", "c"} {
		seen = seen.With("cm", int64(generation), digest)
	}
	v := contract.View{ConfigMap: "cm", Seen: seen, Ack: contract.Ack{Generation: 1, Digest: "b"}}
	assert.True(t, v.Known())
	for name, other := range map[string]contract.Versions{
		"the same generation again": seen.With("cm", 1, "other"), "an earlier generation": seen.With("cm", 0, "a"), "another ConfigMap": seen.With("new", 9, "z"),
	} {
		v.Seen = other
		assert.False(t, v.Known(), name)
	}
}

// The contract of A was built from a decision that a restore of etcd has taken back.
func TestADecisionThatHasGoneBackIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, schedule.Set{1})...)
	restored := w.status
	w.decide(both(schedule.Set{0, 1}, nil)...)
	w.build("A")
	w.status = restored
	w.status.Releasing = []placement.Placement{share("b", "B", "0", 1)}
	lost := w.views["A"].Contract.Entries[0].Highest()
	floor := contract.Floor{Contracts: lost}
	require.Equal(t, contract.Nothing, contract.Build(w.input("A")).Action, "the entry is of a later decision")

	_, changed, err := contract.Release(w.status, "u", nil, func(string) bool { return true }, floor)
	require.NoError(t, err)
	assert.False(t, changed, "the decision comes first")

	want := both(schedule.Set{0}, schedule.Set{1})
	next, changed, err := contract.Decide(w.status, want, noneEnded, floor)
	require.NoError(t, err)
	require.True(t, changed)
	assert.Equal(t, status(lost+1, []placement.Placement{share("a", "A", "0", lost+1), share("b", "B", "1", lost+1)},
		[]placement.Placement{share("b", "B", "0", lost+1)}).Placeable, next.Placeable)
	assert.Equal(t, lost+1, next.Releasing[0].Since)
	_, changed, err = contract.Decide(next, want, noneEnded, floor)
	require.NoError(t, err)
	assert.False(t, changed)
	w.status, w.status.Releasing = next, nil
	assert.Equal(t, map[int32]int64{0: lost}, w.build("A"))
	assert.Equal(t, next.Decision, w.views["A"].Contract.Entries[0].Decision)
}

// A resource that is deleted and created again, or whose status is erased, must not get an epoch
// that it had before: target systems know its name only.
func TestNumbersFollowTheTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	former, _, err := contract.Decide(placement.Status{}, both(schedule.Set{0}, nil), noneEnded, contract.Floor{Time: at})
	require.NoError(t, err)
	assert.Greater(t, former.Decision, at.UnixMilli())
	again, _, err := contract.Decide(placement.Status{}, both(schedule.Set{0}, nil), noneEnded, contract.Floor{Time: at.Add(time.Second)})
	require.NoError(t, err)
	assert.Greater(t, again.Decision, former.Decision)
	next, _, err := contract.Decide(again, both(nil, schedule.Set{0}), noneEnded, contract.Floor{Time: at})
	require.NoError(t, err)
	assert.Equal(t, again.Decision+1, next.Decision, "a clock that is behind does not matter")
	released, changed, err := contract.Release(next, "u", func(string) (*contract.View, bool) { return nil, false }, func(string) bool { return true }, contract.Floor{Time: at.Add(time.Hour)})
	require.NoError(t, err)
	require.True(t, changed)
	assert.Equal(t, at.Add(time.Hour).UnixMilli()+1, released.Decision)
}

func TestNoNumberOverflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.decide(both(schedule.Set{0}, nil)...)
	w.build("A")
	v := w.views["A"]
	for _, generation := range []int64{math.MaxInt64, placement.MaxNumber, -1, math.MinInt64} {
		v.Ack = contract.Ack{Incarnation: "A", Generation: generation, Digest: "x"}
		assert.Equal(t, contract.Nothing, contract.Build(w.input("A")).Action, "no write, however often")
		in := w.input("A")
		in.Placed[0].Of++
		plan := contract.Build(in)
		assert.Equal(t, v.Contract.Generation+1, plan.Contract.Generation)
	}
	v.Ack.Generation = placement.MaxNumber - 1
	assert.Equal(t, int64(placement.MaxNumber), contract.Build(w.input("A")).Contract.Generation)
	v.Contract.Generation = placement.MaxNumber
	assert.Equal(t, contract.Delete, contract.Build(w.input("A")).Action, "a new ConfigMap begins again")

	for _, number := range []int64{placement.MaxNumber, math.MaxInt64, -1} {
		edited := status(number, []placement.Placement{share("a", "A", "0", 1)}, nil)
		_, changed, err := contract.Decide(edited, both(nil, schedule.Set{0}), noneEnded, contract.Floor{})
		require.ErrorIs(t, err, placement.ErrMalformedStatus)
		assert.False(t, changed)
	}
	_, changed, err := contract.Decide(w.status, both(schedule.Set{-1}, nil), noneEnded, contract.Floor{})
	require.ErrorIs(t, err, placement.ErrMalformedStatus, "it could be written, but not read")
	assert.False(t, changed)
	_, _, err = contract.Decide(w.status, nil, noneEnded, contract.Floor{Contracts: math.MaxInt64})
	require.ErrorIs(t, err, placement.ErrMalformedStatus)
}

// everyone returns a status in which one incarnation owns all of many indexes and another one
// releases them.
func everyone(all string) placement.Status {
	return status(1, []placement.Placement{share("a", "A", all, 1)}, []placement.Placement{share("b", "B", all, 1)})
}

// The cost of a status grows with the number of indexes, not with its square: otherwise this test
// takes minutes.
func TestAStatusWithManyIndexesIsCheap(t *testing.T) {
	t.Parallel()
	s := everyone("0-199999")
	next, changed, err := contract.Decide(s, []contract.Share{{Pod: "c", Incarnation: "C", Indexes: schedule.Set{0}}}, noneEnded, contract.Floor{})
	require.NoError(t, err)
	require.True(t, changed)
	assert.Len(t, next.Releasing, 2)
	next, changed, err = contract.Release(s, "u", func(string) (*contract.View, bool) { return nil, false }, func(string) bool { return true }, contract.Floor{})
	require.NoError(t, err)
	require.True(t, changed)
	assert.Empty(t, next.Releasing)

	w := newWorld(t)
	w.overlap, w.status = true, s
	w.views["A"], w.views["B"] = &contract.View{ConfigMap: "a"}, &contract.View{ConfigMap: "b"}
	in := w.input("B")
	in.View.Contract = contract.Contract{Incarnation: "B", Generation: 1, Entries: []contract.Entry{{Reference: reference("u"), Decision: 1, Changed: 1, Replicas: map[int32]int64{0: 1}}}}
	assert.Equal(t, map[int32]int64{0: 1}, contract.Build(in).Contract.Entries[0].Replicas)

	s = everyone("0-1048575")
	require.NoError(t, s.Check())
	s.Releasing = append(s.Releasing, s.Releasing[0])
	require.ErrorIs(t, s.Check(), placement.ErrMalformedStatus)
	_, _, err = contract.Decide(s, nil, noneEnded, contract.Floor{})
	require.ErrorIs(t, err, placement.ErrMalformedStatus)
	in.Placed[0].Status = s
	assert.Equal(t, contract.Nothing, contract.Build(in).Action, "a malformed status takes nothing away")
}
