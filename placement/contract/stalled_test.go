package contract_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// stalled sets up the state left by two leaders, one of which stalls. Index 0 has moved from B to
// A. A's entry was built and acknowledged while B was releasing the index, so it does not list the
// index. The first leader computes a contract that grants the index to A, and stalls. The second
// leader moves the index back to B.
func stalled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.decide(both(schedule.Set{1}, schedule.Set{0})...)
	w.build("A")
	w.build("B")
	w.acknowledge("A")
	w.acknowledge("B")
	w.decide(both(schedule.Set{0, 1}, nil)...)
	assert.Equal(t, map[int32]int64{1: 1}, w.build("A"))
	w.acknowledge("A")
	w.build("B")
	w.acknowledge("B")
	require.True(t, w.release())
	grant := contract.Build(w.input("A"))
	require.Equal(t, map[int32]int64{0: 3, 1: 1}, grant.Contract.Entries[0].Replicas)
	w.decide(both(schedule.Set{1}, schedule.Set{0})...)
	return w
}

// A's contract must be rewritten and acknowledged before B gets the index, so the stalled write has
// an outdated resourceVersion.
func TestAStalledGrantFails(t *testing.T) {
	t.Parallel()
	w := stalled(t)
	assert.False(t, w.release(), "A's entry is of an earlier decision")
	assert.Empty(t, w.build("B"))
	before := w.views["A"].Contract.Generation
	assert.Equal(t, map[int32]int64{1: 1}, w.build("A"), "the indexes stay the same")
	assert.Greater(t, w.views["A"].Contract.Generation, before, "the contract is written nevertheless")
	assert.False(t, w.release())
	w.acknowledge("A")
	assert.True(t, w.release())
	assert.Equal(t, map[int32]int64{0: 5}, w.build("B"))
}

// With one of the rules broken, A's contract is not rewritten before B gets the index, so the
// stalled write still has the present resourceVersion.
func TestAStalledGrantWouldSucceed(t *testing.T) {
	t.Parallel()
	for name, breakRule := range map[string]func(w *world){
		"since does not move": func(w *world) {
			for i := range w.status.Releasing {
				w.status.Releasing[i].Since = 2
			}
		},
		"the decision is ignored": func(w *world) { w.views["A"].Contract.Entries[0].Decision = 1 << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := stalled(t)
			generation := w.views["A"].Contract.Generation
			breakRule(w)
			assert.True(t, w.release())
			assert.Equal(t, map[int32]int64{0: 5}, w.build("B"))
			assert.Equal(t, generation, w.views["A"].Contract.Generation)
		})
	}
}
