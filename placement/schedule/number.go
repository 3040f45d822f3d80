package schedule

import (
	"maps"
	"slices"
)

// Number assigns the indexes 0 to replicas-1 to pods, so that each pod has the number in next and
// keeps as many of its indexes in now as possible. Pod by pod, in the order of their names, a pod
// keeps the lowest of its indexes that are in range and that no pod before it keeps, up to its
// number; the others are free for the pods after it. Then the free indexes are assigned in
// ascending order to the pods in the order of their names, until none is left. A pod without
// indexes is not in the result. At most [MaxIndexes] indexes are assigned.
func Number(replicas int32, now map[string]Set, next map[string]int32) map[string]Set {
	replicas = min(max(replicas, 0), MaxIndexes)
	names := slices.Sorted(maps.Keys(next))
	result := make(map[string]Set, len(next))
	taken := map[int32]bool{}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		var kept Set
		for _, index := range slices.Sorted(slices.Values(now[name])) {
			if index >= 0 && index < replicas && !taken[index] {
				kept, taken[index] = append(kept, index), true
			}
		}
		count := min(int(max(next[name], 0)), len(kept))
		for _, index := range kept[count:] {
			taken[index] = false
		}
		if count > 0 {
			result[name] = kept[:count:count]
		}
	}
	free := int32(0)
	for _, name := range names {
		set := result[name]
		for ; len(set) < int(next[name]) && free < replicas; free++ {
			if !taken[free] {
				set = append(set, free)
			}
		}
		if len(set) > 0 {
			slices.Sort(set)
			result[name] = set
		}
	}
	return result
}
