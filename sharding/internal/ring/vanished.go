package ring

import (
	"maps"
	"slices"
	"strings"
	"time"

	"nodekeeper.dev/sharding/shardlease"
)

// unknownDuration is the assumed duration of a Lease that this process has never seen or that does
// not specify one.
var unknownDuration = shardlease.DefaultDuration(0)

// vanished records the shards of a ring whose Leases were deleted, or lost the ring label, while
// the shards may still be alive. A live shard recreates its Lease with the next renewal. The
// sharder keeps a vanished shard for twice the lease duration, until its right to act has ended.
type vanished map[string]absence

// absence is the absence of a Lease.
type absence struct {
	since    time.Time
	duration time.Duration
	// over is set once the shard counts as dead.
	over bool
}

// observe records the current Leases and the Leases of previously live shards. It reports whether
// anything has changed.
func (v vanished) observe(live, all []shardlease.Seen, at time.Time) (changed bool) {
	for _, s := range live {
		if !has(all, s.Lease.Name) {
			v[s.Lease.Name], changed = absence{since: at, duration: shardlease.Duration(s.Lease)}, true
		}
	}
	for name, a := range v {
		switch {
		case has(all, name):
			delete(v, name)
			changed = true
		case !a.over && at.Sub(a.since) >= 2*a.duration:
			a.over = true
			v[name], changed = a, true
		}
	}
	return changed
}

// addMissing adds the shards in the table that have no Lease. It removes dead shards that are no
// longer in the table.
func (v vanished) addMissing(inTable []string, all []shardlease.Seen, now time.Time) {
	for _, name := range inTable {
		if _, ok := v[name]; !ok && !has(all, name) {
			v[name] = absence{since: now, duration: unknownDuration}
		}
	}
	maps.DeleteFunc(v, func(name string, a absence) bool { return a.over && !slices.Contains(inTable, name) })
}

// names returns the shards that may still be alive, sorted.
func (v vanished) names() []string {
	var names []string
	for name, a := range v {
		if !a.over {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// has reports whether a Lease of the given name exists. The Leases must be sorted by name.
func has(all []shardlease.Seen, name string) bool {
	_, found := slices.BinarySearchFunc(all, name, func(s shardlease.Seen, name string) int { return strings.Compare(s.Lease.Name, name) })
	return found
}
