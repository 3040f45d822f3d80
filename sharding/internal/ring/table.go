package ring

import (
	"slices"
	"time"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// maxSettles bounds the wait for further joins, as a multiple of the settle time.
const maxSettles = 4

// Next returns the table for the given states of the shards, which must be sorted by name. If
// nothing changes, it returns the old table; otherwise the generation is one higher than that of
// the old table, which may be nil. If a join must wait for others, Next also returns the remaining
// delay, and otherwise zero.
func Next(old *v1alpha1.Table, shards []Shard, settle time.Duration, now time.Time) (next *v1alpha1.Table, wait time.Duration) {
	live := []string{} // encoded as an empty list, not as null
	var members, silent, unready []string
	before := assigned(old)
	var joiners []Shard
	lost := isAnyLost(before.Shards, shards)
	for _, s := range shards {
		if !s.State.Live() {
			continue
		}
		live = append(live, s.Name)
		_, isMember := slices.BinarySearch(before.Shards, s.Name)
		switch {
		case s.State == Leaving:
		case isMember:
			members = append(members, s.Name)
			if s.State.Silent() {
				silent = append(silent, s.Name)
			}
		case s.State == Ready && s.Unready:
			unready = append(unready, s.Name)
		case s.State == Ready:
			joiners = append(joiners, s)
		}
	}
	alone := len(members) == len(silent)
	if due := settled(joiners, settle); alone || lost || !now.Before(due) {
		for _, s := range joiners {
			members = append(members, s.Name)
		}
	} else if len(joiners) > 0 {
		wait = due.Sub(now)
	}
	if alone {
		members = append(members, unready...)
	}
	after := before.With(members)
	next = tableOf(live, after, withoutSilent(after, silent))
	if old != nil {
		next.Generation = old.Generation
		if same(old, next) {
			return old, wait
		}
	}
	next.Generation++
	return next, wait
}

// isAnyLost reports whether a shard that has slots does not keep them.
func isAnyLost(members []string, shards []Shard) bool {
	return slices.ContainsFunc(members, func(name string) bool { return !slices.ContainsFunc(shards, hasSlots(name)) })
}

// hasSlots returns a function that reports whether a shard has the given name and keeps its slots.
func hasSlots(name string) func(Shard) bool {
	return func(s Shard) bool { return s.Name == name && s.State.Live() && s.State != Leaving }
}

// settled returns the time at which the wait for further joins ends.
func settled(joiners []Shard, settle time.Duration) time.Time {
	var first, last time.Time
	for _, s := range joiners {
		if first.IsZero() || s.Joined.Before(first) {
			first = s.Joined
		}
		if s.Joined.After(last) {
			last = s.Joined
		}
	}
	if due, latest := last.Add(settle), first.Add(maxSettles*settle); due.Before(latest) {
		return due
	}
	return first.Add(maxSettles * settle)
}

// withoutSilent returns the table without the silent shards. It returns the table unchanged if all
// shards are silent.
func withoutSilent(t slots.Table, silent []string) slots.Table {
	responsive := slices.DeleteFunc(slices.Clone(t.Shards), func(name string) bool { return slices.Contains(silent, name) })
	if len(responsive) == 0 || len(silent) == 0 {
		return t
	}
	return t.With(responsive)
}

// assigned returns the shards that have slots, with their slots. It returns an empty table if t is
// invalid.
func assigned(t *v1alpha1.Table) slots.Table {
	if t == nil || len(t.Slots) != slots.Count || !slices.IsSorted(t.Shards) || !inRange(t.Slots, len(t.Shards)) {
		return slots.Table{} // users can edit the status
	}
	var names []string
	for i, name := range t.Shards {
		if slices.Contains(t.Slots, int32(i)) {
			names = append(names, name)
		}
	}
	table := slots.Table{Shards: names, Slots: make([]int, slots.Count)}
	for slot, i := range t.Slots {
		table.Slots[slot], _ = slices.BinarySearch(names, t.Shards[i])
	}
	return table
}

// inRange reports whether all indexes are in the range from 0 to n-1.
func inRange(indexes []int32, n int) bool {
	return !slices.ContainsFunc(indexes, func(i int32) bool { return i < 0 || int(i) >= n })
}

// tableOf returns the stored form of a table. The argument live lists the names of all live shards.
func tableOf(live []string, now, next slots.Table) *v1alpha1.Table {
	return &v1alpha1.Table{Shards: live, Slots: indexes(live, now), Next: indexes(live, next)}
}

func indexes(live []string, t slots.Table) []int32 {
	if len(t.Shards) == 0 {
		return nil
	}
	all := make([]int32, len(t.Slots))
	for slot, i := range t.Slots {
		at, _ := slices.BinarySearch(live, t.Shards[i])
		all[slot] = int32(at) //nolint:gosec // 256 at most
	}
	return all
}

func same(a, b *v1alpha1.Table) bool {
	return slices.Equal(a.Shards, b.Shards) && slices.Equal(a.Slots, b.Slots) && slices.Equal(a.Next, b.Next)
}
