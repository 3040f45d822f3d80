package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/slots"
)

// viewOf returns the view of a ring with these live shards after a former view. The silent ones are
// also listed separately.
func viewOf(former *view, shards []string, silent ...string) *view {
	before := slots.Table{}
	if former != nil {
		before = tableOf(former)
	}
	now := before.With(shards)
	var heard []string
	for _, name := range now.Shards {
		isSilent := false
		for _, s := range silent {
			isSilent = isSilent || s == name
		}
		if !isSilent {
			heard = append(heard, name)
		}
	}
	next := now.With(heard)
	table := &v1alpha1.Table{Shards: now.Shards, Slots: make([]int32, slots.Count), Next: make([]int32, slots.Count)}
	for slot := range table.Slots {
		table.Slots[slot] = int32(now.Slots[slot])
		for i, name := range now.Shards {
			if name == next.Shards[next.Slots[slot]] {
				table.Next[slot] = int32(i)
			}
		}
	}
	return newView(&v1alpha1.ClusterRing{Status: v1alpha1.ClusterRingStatus{Table: table}}, nil, place.Selection{})
}

func tableOf(v *view) slots.Table {
	t := slots.Table{Shards: v.ring.Status.Table.Shards}
	for _, i := range v.ring.Status.Table.Slots {
		t.Slots = append(t.Slots, int(i))
	}
	return t
}

// TestResyncsAreOnlyForWhatNoWatchShows covers R24: resyncs are for objects of live shards.
func TestResyncsAreOnlyForWhatNoWatchShows(t *testing.T) {
	t.Parallel()
	three := viewOf(nil, []string{"a", "b", "c"})
	silent := viewOf(three, []string{"a", "b", "c"}, "b")
	assert.True(t, three.needsResync(nil), "a new leader")
	assert.False(t, viewOf(three, []string{"a", "b", "c"}).needsResync(three), "nothing changes")
	assert.True(t, viewOf(three, []string{"a", "b", "c", "d"}).needsResync(three), "a shard joins")
	assert.False(t, viewOf(three, []string{"a", "c"}).needsResync(three), "a shard dies")
	assert.False(t, silent.needsResync(three), "a shard is silent")
	assert.True(t, three.needsResync(silent), "it returns: objects placed elsewhere meanwhile move to it")
	assert.False(t, viewOf(silent, []string{"a", "c"}).needsResync(silent), "it dies")

	leaving := viewOf(three, []string{"a", "c"})
	leaving.live["b"] = true
	assert.True(t, leaving.needsResync(three), "a shard leaves and still has objects")
	other := viewOf(three, []string{"a", "b", "c"})
	other.ring.Generation++
	assert.True(t, other.needsResync(three), "the spec changes")
	narrow := viewOf(three, []string{"a", "b", "c"})
	narrow.selection = place.Only("n")
	assert.True(t, narrow.needsResync(three), "namespaces leave")
	assert.False(t, three.needsResync(narrow), "namespaces join: the watches show their objects")
}
