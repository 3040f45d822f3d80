package place

import (
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/slots"
)

// Table is the table of a ring in a form for lookups. The zero value has no shards.
type Table struct {
	// Now and Next are the shards of each slot, or nil if the ring has no table. They differ for
	// the slots of silent shards.
	Now, Next []string
	// Silent is the set of shards that have slots and have not renewed their Leases in time.
	Silent map[string]bool
}

// TableOf converts the table in a ring's status, which may be nil. An invalid table counts as no
// table, because users can edit the status.
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

// Of returns the place of the object with the given key.
func (t Table) Of(key string) handover.Place {
	if t.Now == nil {
		return handover.Place{}
	}
	slot := slots.Slot(key)
	return handover.Place{Now: t.Now[slot], Next: t.Next[slot]}
}

// owners returns the shard of each slot, or nil if the indexes are invalid.
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
