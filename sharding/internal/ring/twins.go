package ring

import (
	"cmp"
	"slices"
	"strings"

	"nodekeeper.dev/sharding/shardlease"
)

// Distinct returns one Lease of each name, in the order of the names, and the others of these names: in a
// ring with shards in any namespace, two can have one name, and with it the same objects. The older one
// counts, unless only the other one is held by its shard: then nobody has shown that the name is gone.
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

// bySeniority orders Leases by name, and those of one name as they count.
func bySeniority(a, b shardlease.Seen) int {
	return cmp.Or(
		strings.Compare(a.Lease.Name, b.Lease.Name), -compareBool(isHeld(a), isHeld(b)),
		a.Lease.CreationTimestamp.Compare(b.Lease.CreationTimestamp.Time), strings.Compare(a.Lease.Namespace, b.Lease.Namespace))
}

// isHeld reports whether a shard holds its Lease, or may still do so.
func isHeld(s shardlease.Seen) bool { return s.State.Member() }
