package ring_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/slots"
)

const settle = 5 * time.Second

var start = time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)

// shards returns shards from their names, states and join times, which must be sorted by name.
func shards(all ...any) []ring.Shard {
	var list []ring.Shard
	for i := 0; i < len(all); i += 3 {
		list = append(list, ring.Shard{Name: all[i].(string), State: all[i+1].(ring.State), Joined: at(all[i+2].(int))})
	}
	return list
}

// shares returns the number of slots of each shard.
func shares(t *v1alpha1.Table, indexes []int32) map[string]int {
	all := map[string]int{}
	for _, i := range indexes {
		all[t.Shards[i]]++
	}
	return all
}

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestFirstShardHasAllSlotsAtOnce(t *testing.T) {
	t.Parallel()
	table, wait := ring.Next(nil, shards("a", ring.Ready, 0), settle, at(0))
	assert.Zero(t, wait)
	assert.EqualValues(t, 1, table.Generation)
	assert.Equal(t, map[string]int{"a": slots.Count}, shares(table, table.Slots))
	assert.Equal(t, table.Slots, table.Next)
}

// TestJoinsThatComeTogetherMakeOneTable covers R13.
func TestJoinsThatComeTogetherMakeOneTable(t *testing.T) {
	t.Parallel()
	first, _ := ring.Next(nil, shards("a", ring.Ready, 0), settle, at(0))
	table, wait := ring.Next(first, shards("a", ring.Ready, 0, "b", ring.Ready, 10), settle, at(10))
	assert.Equal(t, settle, wait)
	assert.Equal(t, []string{"a", "b"}, table.Shards, "b is live, and whoever has its label keeps it")
	assert.Equal(t, map[string]int{"a": slots.Count}, shares(table, table.Slots))

	three := shards("a", ring.Ready, 0, "b", ring.Ready, 10, "c", ring.Ready, 14)
	table, wait = ring.Next(table, three, settle, at(14))
	assert.Equal(t, settle, wait, "the last join counts")
	again, wait := ring.Next(table, three, settle, at(18))
	assert.Same(t, table, again)
	assert.Equal(t, time.Second, wait)
	table, wait = ring.Next(table, three, settle, at(19))
	assert.Zero(t, wait)
	assert.Equal(t, map[string]int{"a": 342, "b": 341, "c": 341}, shares(table, table.Slots))
}

func TestJoinsThatGoOnAreNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	table, _ := ring.Next(nil, shards("a", ring.Ready, 0), settle, at(0))
	all := []any{"a", ring.Ready, 0}
	for i := range 10 {
		all = append(all, "b"+strconv.Itoa(i), ring.Ready, 10+3*i)
	}
	_, wait := ring.Next(table, shards(all[:3*7]...), settle, at(29))
	assert.Equal(t, time.Second, wait)
	table, wait = ring.Next(table, shards(all[:3*8]...), settle, at(30))
	assert.Zero(t, wait, "four settle times after the first join")
	assert.Len(t, shares(table, table.Slots), 8)
}

// All shards that have joined by then are included: a shard that replaces another one within the
// settle time causes only one change.
func TestEndsActAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string][]any{
		"dead": {"b", ring.Dead, 0}, "orphaned": {"b", ring.Orphaned, 0}, "gone": nil, "leaving": {"b", ring.Leaving, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, _ := ring.Next(nil, shards("a", ring.Ready, 0, "b", ring.Ready, 0), settle, at(0))
			all := append([]any{"a", ring.Ready, 0}, end...)
			next, wait := ring.Next(table, shards(append(all, "c", ring.Ready, 20)...), settle, at(20))
			assert.Zero(t, wait)
			assert.Equal(t, map[string]int{"a": 512, "c": 512}, shares(next, next.Slots))
			assert.Equal(t, table.Generation+1, next.Generation)
			if name == "leaving" {
				assert.Equal(t, []string{"a", "b", "c"}, next.Shards, "it lives, and keeps its objects until they are drained")
			}
		})
	}
}

// TestSilentShardGetsNothingNew covers R14.
func TestSilentShardGetsNothingNew(t *testing.T) {
	t.Parallel()
	table, _ := ring.Next(nil, shards("a", ring.Ready, 0, "b", ring.Ready, 0, "c", ring.Ready, 0), settle, at(0))
	for _, silent := range []ring.State{ring.Expired, ring.Uncertain} {
		next, _ := ring.Next(table, shards("a", ring.Ready, 0, "b", silent, 0, "c", ring.Ready, 0), settle, at(20))
		assert.Equal(t, table.Slots, next.Slots, "it keeps its objects")
		assert.Equal(t, map[string]int{"a": 512, "c": 512}, shares(next, next.Next))
		dead, _ := ring.Next(next, shards("a", ring.Ready, 0, "b", ring.Dead, 0, "c", ring.Ready, 0), settle, at(30))
		for slot, i := range next.Next {
			require.Equal(t, next.Shards[i], dead.Shards[dead.Slots[slot]], "the next table becomes the table")
		}
		back, _ := ring.Next(next, shards("a", ring.Ready, 0, "b", ring.Ready, 0, "c", ring.Ready, 0), settle, at(30))
		assert.Equal(t, table.Slots, back.Slots)
		assert.Equal(t, table.Slots, back.Next)
	}
	all, _ := ring.Next(table, shards("a", ring.Expired, 0, "b", ring.Expired, 0, "c", ring.Expired, 0), settle, at(20))
	assert.Same(t, table, all, "there is no other shard")
}

// Otherwise new objects would be assigned to silent shards.
func TestJoinerWaitsForNoShardWhileAllAreSilent(t *testing.T) {
	t.Parallel()
	table, _ := ring.Next(nil, shards("a", ring.Ready, 0), settle, at(0))
	next, wait := ring.Next(table, shards("a", ring.Uncertain, 0, "b", ring.Ready, 40), settle, at(40))
	assert.Zero(t, wait)
	assert.Equal(t, map[string]int{"a": 512, "b": 512}, shares(next, next.Slots))
	assert.Equal(t, map[string]int{"b": 1024}, shares(next, next.Next))
}

func TestSilentShardThatHasNothingGetsNothing(t *testing.T) {
	t.Parallel()
	table, _ := ring.Next(nil, shards("a", ring.Ready, 0), settle, at(0))
	next, wait := ring.Next(table, shards("a", ring.Ready, 0, "b", ring.Expired, 1), settle, at(60))
	assert.Zero(t, wait)
	assert.Equal(t, map[string]int{"a": slots.Count}, shares(next, next.Slots))
}

func TestWithoutShardsTheTableIsEmpty(t *testing.T) {
	t.Parallel()
	none, _ := ring.Next(nil, nil, settle, at(0))
	assert.Empty(t, none.Slots)
	table, _ := ring.Next(none, shards("a", ring.Ready, 0), settle, at(0))
	gone, _ := ring.Next(table, shards("a", ring.Dead, 0), settle, at(20))
	assert.Empty(t, gone.Shards)
	assert.Empty(t, gone.Slots)
	assert.Equal(t, table.Generation+1, gone.Generation)
}

// An invalid table is computed again, whatever it contains.
func TestEditedTableIsComputedAgain(t *testing.T) {
	t.Parallel()
	right, _ := ring.Next(nil, shards("a", ring.Ready, 0, "b", ring.Ready, 0), settle, at(0))
	for name, edit := range map[string]func(*v1alpha1.Table){
		"fewer slots":       func(t *v1alpha1.Table) { t.Slots = t.Slots[:5] },
		"no such shard":     func(t *v1alpha1.Table) { t.Slots[7] = 2 },
		"a negative index":  func(t *v1alpha1.Table) { t.Slots[7] = -1 },
		"shards not sorted": func(t *v1alpha1.Table) { slices.Reverse(t.Shards) },
		"no next":           func(t *v1alpha1.Table) { t.Next = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := right.DeepCopy()
			edit(edited)
			next, _ := ring.Next(edited, shards("a", ring.Ready, 0, "b", ring.Ready, 0), settle, at(60))
			assert.Equal(t, map[string]int{"a": 512, "b": 512}, shares(next, next.Slots))
			assert.Equal(t, right.Generation+1, next.Generation)
			assert.Equal(t, next.Slots, next.Next)
		})
	}
}

// For any states of shards, all indexes are valid, each slot has a live shard that is not leaving,
// and nothing changes without a reason.
func TestEveryHistoryGivesEverySlotToALiveShard(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	states := []ring.State{ring.Ready, ring.Ready, ring.Ready, ring.Leaving, ring.Expired, ring.Uncertain, ring.Dead, ring.Orphaned}
	for range 60 {
		var table *v1alpha1.Table
		for step := range 20 {
			var now []any
			for i := range 8 {
				if r.IntN(4) > 0 {
					now = append(now, "web-"+strconv.Itoa(i), states[r.IntN(len(states))], r.IntN(step+1))
				}
			}
			next, wait := ring.Next(table, shards(now...), settle, at(step))
			checkTable(t, shards(now...), next)
			again, _ := ring.Next(next, shards(now...), settle, at(step))
			require.True(t, wait > 0 || again == next, "the table does not change while nothing happens")
			table = next
		}
	}
}

func checkTable(t *testing.T, all []ring.Shard, table *v1alpha1.Table) {
	t.Helper()
	states := map[string]ring.State{}
	live, ready := []string{}, 0
	for _, s := range all {
		if s.State.Live() {
			states[s.Name] = s.State
			live = append(live, s.Name)
		}
		if s.State == ring.Ready {
			ready++
		}
	}
	require.Equal(t, live, append([]string{}, table.Shards...))
	if len(table.Slots) == 0 {
		require.Zero(t, ready, "a ready shard has slots")
		return
	}
	require.Len(t, table.Slots, slots.Count)
	require.Len(t, table.Next, slots.Count)
	for slot := range slots.Count {
		require.NotEqual(t, ring.Leaving, states[table.Shards[table.Slots[slot]]])
	}
	for name := range shares(table, table.Next) {
		require.True(t, ready == 0 || !states[name].Silent() || onlySilent(table, states), "%s is silent and gets new objects", name)
	}
}

// onlySilent reports whether all shards that have slots are silent.
func onlySilent(table *v1alpha1.Table, states map[string]ring.State) bool {
	for name := range shares(table, table.Slots) {
		if !states[name].Silent() {
			return false
		}
	}
	return true
}
