package slots

import (
	"cmp"
	"slices"
)

// Table maps slots to shards. The zero value has no shards.
type Table struct {
	// Shards are the names of the shards, sorted and without duplicates.
	Shards []string
	// Slots holds, for each of the [Count] slots, the index of its shard in Shards. It is empty if
	// there are no shards.
	Slots []int
}

// Shard returns the shard that has the slot of a key. It returns false if the table has no shards.
func (t Table) Shard(key string) (name string, ok bool) {
	if len(t.Shards) == 0 {
		return "", false
	}
	return t.Shards[t.Slots[Slot(key)]], true
}

// Share returns the number of slots of a shard, or 0 if the shard is not in the table.
func (t Table) Share(name string) int {
	at, ok := slices.BinarySearch(t.Shards, name)
	if !ok {
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

// With returns the table for the named shards, which may be in any order and contain duplicates. It
// differs from t in as few slots as possible: the slots of removed shards, and the slots that
// remaining shards have in excess of their share. Shares differ by at most one. The result depends
// only on t and on the set of names.
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
		for _, slot := range own[:min(len(own), limits[i])] { // the highest slots become free
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

// free marks a slot without a shard.
const free = -1

// ownedBy returns the slots of each named shard, in ascending order.
func (t Table) ownedBy(names []string) [][]int {
	owned := make([][]int, len(names))
	for slot, shard := range t.Slots {
		if i, ok := slices.BinarySearch(names, t.Shards[shard]); ok {
			owned[i] = append(owned[i], slot)
		}
	}
	return owned
}

// quotas returns the number of slots that each shard may keep. If [Count] is not divisible by the
// number of shards, the shards that have the most slots now may keep one more; ties are broken by
// name.
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
