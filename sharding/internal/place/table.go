package place

import (
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/slots"
)

// Table is the table of a ring. The zero value has no shard.
type Table struct {
	// Now and Next are the shards of each slot, nil if the ring has no table. They differ for the slots of
	// silent shards.
	Now, Next []string
	// Silent are the shards that have slots and have not renewed their Leases in time.
	Silent map[string]bool
}

// TableOf returns the table in the status of a ring, which may be nil. One that is not as the sharder writes
// it counts as none: people can edit a status.
func TableOf(t *v1alpha1.Table) Table {
	if t == nil {
		return Table{}
	}
	table := Table{Now: owners(t.Shards, t.Slots), Next: owners(t.Shards, t.Next), Silent: map[string]bool{}}
	if table.Next == nil {
		table.Next = table.Now
	}
	for slot, name := range table.Now {
		if table.Next[slot] != name {
			table.Silent[name] = true
		}
	}
	return table
}

// Of returns where an object with a key belongs.
func (t Table) Of(key string) handover.Place {
	if t.Now == nil {
		return handover.Place{}
	}
	slot := slots.Slot(key)
	return handover.Place{Now: t.Now[slot], Next: t.Next[slot]}
}

// owners returns the shard of each slot, nil if the indexes are not as the sharder writes them.
func owners(shards []string, indexes []int32) []string {
	if len(indexes) != slots.Count {
		return nil
	}
	names := make([]string, len(indexes))
	for slot, i := range indexes {
		if i < 0 || int(i) >= len(shards) {
			return nil
		}
		names[slot] = shards[i]
	}
	return names
}
