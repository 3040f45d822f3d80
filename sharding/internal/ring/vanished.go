package ring

import (
	"maps"
	"slices"
	"strings"
	"time"

	"nodekeeper.dev/sharding/shardlease"
)

// unknownDuration is that of a Lease that this process has never seen, and of one that does not say.
var unknownDuration = shardlease.DefaultDuration(0)

// vanished are the shards of a ring whose Leases are gone although nobody has shown that the shards are:
// somebody has deleted the Lease, or taken its label off. A shard that lives
// finds out with its next renewal. It keeps its objects until its right to act on them has ended, for twice the duration.
type vanished map[string]absence

// absence is since when a Lease is gone.
type absence struct {
	since    time.Time
	duration time.Duration
	// isOver reports that the shard is gone, too.
	isOver bool
}

// see notes the Leases that there are, and which there were of live shards. It reports whether anything
// changes by that.
func (v vanished) see(live, all []shardlease.Seen, at time.Time) (hasChanged bool) {
	for _, s := range live {
		if !has(all, s.Lease.Name) {
			v[s.Lease.Name], hasChanged = absence{since: at, duration: shardlease.Duration(s.Lease)}, true
		}
	}
	for name, a := range v {
		switch {
		case has(all, name):
			delete(v, name)
			hasChanged = true
		case !a.isOver && at.Sub(a.since) >= 2*a.duration:
			a.isOver = true
			v[name], hasChanged = a, true
		}
	}
	return hasChanged
}

// miss notes the shards of a table that have no Lease. Those that are gone and are in no table any more
// are forgotten.
func (v vanished) miss(inTable []string, all []shardlease.Seen, now time.Time) {
	for _, name := range inTable {
		if _, known := v[name]; !known && !has(all, name) {
			v[name] = absence{since: now, duration: unknownDuration}
		}
	}
	maps.DeleteFunc(v, func(name string, a absence) bool { return a.isOver && !slices.Contains(inTable, name) })
}

// names returns the shards that may still be there.
func (v vanished) names() []string {
	var names []string
	for name, a := range v {
		if !a.isOver {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// has reports whether there is a Lease of a name. The Leases are in the order of their names.
func has(all []shardlease.Seen, name string) bool {
	_, found := slices.BinarySearchFunc(all, name, func(s shardlease.Seen, name string) int { return strings.Compare(s.Lease.Name, name) })
	return found
}
