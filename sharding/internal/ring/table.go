package ring

import (
	"slices"
	"time"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// maxSettles is how many times the settle time a join waits while others keep joining.
const maxSettles = 4

// Next returns the table after what the shards show at a time, with its generation one higher than that
// of the old one, nil if there was none, or the old table if nothing changes. If a join waits for
// others, it returns for how long, and otherwise zero. The shards must be in the order of their names.
func Next(old *v1alpha1.Table, shards []Shard, settle time.Duration, now time.Time) (next *v1alpha1.Table, wait time.Duration) {
	live := []string{} // and not null
	var members, silent []string
	before := assigned(old)
	var joiners []Shard
	hasLost := slices.ContainsFunc(before.Shards, func(name string) bool { return !slices.ContainsFunc(shards, hasSlots(name)) })
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
		case s.State == Ready:
			joiners = append(joiners, s)
		}
	}
	if due := settled(joiners, settle); len(joiners) > 0 {
		if len(members) == len(silent) || hasLost || !now.Before(due) {
			for _, s := range joiners {
				members = append(members, s.Name)
			}
		} else {
			wait = due.Sub(now)
		}
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

// hasSlots returns whether a shard is the named one and keeps its slots.
func hasSlots(name string) func(Shard) bool {
	return func(s Shard) bool { return s.Name == name && s.State.Live() && s.State != Leaving }
}

// settled returns when no more joins are waited for.
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

// withoutSilent returns the table as it will be if the silent shards are dead: the table itself if that
// are all.
func withoutSilent(t slots.Table, silent []string) slots.Table {
	heard := slices.DeleteFunc(slices.Clone(t.Shards), func(name string) bool { return slices.Contains(silent, name) })
	if len(heard) == 0 || len(silent) == 0 {
		return t
	}
	return t.With(heard)
}

// assigned returns the shards that have slots, with these.
func assigned(t *v1alpha1.Table) slots.Table {
	if t == nil || len(t.Slots) != slots.Count || !slices.IsSorted(t.Shards) || !inRange(t.Slots, len(t.Shards)) {
		return slots.Table{} // people can edit a status
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

// inRange reports whether all indexes are below n.
func inRange(indexes []int32, n int) bool {
	return !slices.ContainsFunc(indexes, func(i int32) bool { return i < 0 || int(i) >= n })
}

// tableOf returns the form in which a table is stored: live are the names of all shards that live.
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
