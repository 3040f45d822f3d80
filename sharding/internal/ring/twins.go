package ring

import (
	"cmp"
	"slices"
	"strings"

	"nodekeeper.dev/sharding/shardlease"
)

// Distinct returns one Lease for each name, sorted by name, and the other Leases with these names.
// In a ring whose shards can be in any namespace, two shards can have the same name and thus the
// same objects. The older Lease is accepted unless only the other one is held by its shard: a name
// must not count as dead while a shard of that name is alive.
func Distinct(all []shardlease.Seen) (counted, twins []shardlease.Seen) {
	for _, s := range slices.SortedStableFunc(slices.Values(all), bySeniority) {
		if n := len(counted); n > 0 && counted[n-1].Lease.Name == s.Lease.Name {
			twins = append(twins, s)
			continue
		}
		counted = append(counted, s)
	}
	return counted, twins
}

// bySeniority orders Leases by name, and Leases of the same name by precedence.
func bySeniority(a, b shardlease.Seen) int {
	return cmp.Or(
		strings.Compare(a.Lease.Name, b.Lease.Name), -compareBool(isHeld(a), isHeld(b)),
		a.Lease.CreationTimestamp.Compare(b.Lease.CreationTimestamp.Time), strings.Compare(a.Lease.Namespace, b.Lease.Namespace))
}

// isHeld reports whether a shard holds its Lease or may still hold it.
func isHeld(s shardlease.Seen) bool { return s.State.Member() }
