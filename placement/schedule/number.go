package schedule

import (
	"maps"
	"slices"
)

// Number deals out the indexes 0 to replicas-1, so that each pod has as many as next says and keeps
// as many of its own as it can. Of now it drops indexes that are out of range, and of duplicates all
// but that of the first pod by name. A pod with more than its count gives up its highest. The
// free indexes go to the pods by name, lowest first, until none is left. A pod without indexes is not in
// the result.
func Number(replicas int32, now map[string]Set, next map[string]int32) map[string]Set {
	replicas = max(replicas, 0)
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
