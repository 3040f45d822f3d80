package slots

import (
	"cmp"
	"slices"
)

// Table says which shard has each slot. The zero value has no shards.
type Table struct {
	// Shards are the names of the shards, each once, in order.
	Shards []string
	// Slots has the index in Shards of the shard that has the slot, for each of [Count] slots. It is
	// empty if there are no shards.
	Slots []int
}

// Shard returns the shard that has the slot of a key. It reports false if there are no shards.
func (t Table) Shard(key string) (name string, ok bool) {
	if len(t.Shards) == 0 {
		return "", false
	}
	return t.Shards[t.Slots[Slot(key)]], true
}

// Share returns how many slots a shard has, 0 if it is not in the table.
func (t Table) Share(name string) int {
	at, isThere := slices.BinarySearch(t.Shards, name)
	if !isThere {
		return 0
	}
	count := 0
	for _, shard := range t.Slots {
		if shard == at {
			count++
		}
	}
	return count
}

// With returns the table for these shards, in any order, which differs from t in as few slots as
// possible: those of shards that are gone, and what others have above their share. The shares
// differ by one at most. The result depends on t and on the set of names only.
func (t Table) With(names []string) Table {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return Table{}
	}
	owned := t.ownedBy(names)
	limits := quotas(owned)
	next := Table{Shards: names, Slots: slices.Repeat([]int{free}, Count)}
	held := make([]int, len(names))
	for i, own := range owned {
		for _, slot := range own[:min(len(own), limits[i])] { // the highest ones become free
			next.Slots[slot] = i
			held[i]++
		}
	}
	for slot, shard := range next.Slots {
		if shard == free {
			fewest := slices.Index(held, slices.Min(held))
			next.Slots[slot] = fewest
			held[fewest]++
		}
	}
	return next
}

// free marks a slot that no shard has.
const free = -1

// ownedBy returns the slots that each of the named shards has, in order.
func (t Table) ownedBy(names []string) [][]int {
	owned := make([][]int, len(names))
	for slot, shard := range t.Slots {
		if i, isThere := slices.BinarySearch(names, t.Shards[shard]); isThere {
			owned[i] = append(owned[i], slot)
		}
	}
	return owned
}

// quotas returns how many slots each shard may keep. As [Count] may not be divisible by their number,
// some may have one more than the others: those that have most now, the first names among equals.
func quotas(owned [][]int) []int {
	most := make([]int, len(owned))
	for i := range most {
		most[i] = i
	}
	slices.SortStableFunc(most, func(a, b int) int { return cmp.Compare(len(owned[b]), len(owned[a])) })
	limits := slices.Repeat([]int{Count / len(owned)}, len(owned))
	for _, i := range most[:Count%len(owned)] {
		limits[i]++
	}
	return limits
}
