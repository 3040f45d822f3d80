package simulation

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// mutant is the real system with one rule broken.
type mutant struct {
	decide  func(t txn.Transaction, r *record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision
	carries carrying
}

// apply is the real decision, seen by the mutant.
func (m mutant) apply(t txn.Transaction, r *record.Record, n *preserve.Node, policy labels.Policy) preserve.Decision {
	d := preserve.Decide(t, r, n, policy)
	if m.decide == nil {
		return d
	}
	return m.decide(t, r, n, d)
}

// saving is a mutant of the rows of Save where there is a record.
func saving(f func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if r == nil || t.Type == txn.Added {
			return d
		}
		return f(t, *r, d)
	}}
}

// restoring is a mutant of the rows of Restore.
func restoring(f func(t txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if r == nil || t.Type != txn.Added {
			return d
		}
		return f(t, *r, n, d)
	}}
}

func saved(r record.Record) preserve.Decision {
	return preserve.Decision{Action: preserve.Save, Record: r}
}

func captured(t txn.Transaction) record.Record {
	return record.Record{Node: t.Node, Labels: t.Labels, Version: t.ResourceVersion, Source: t.UID}
}

func restored(r record.Record, n *preserve.Node) preserve.Decision {
	return preserve.Decision{Action: preserve.Restore, Labels: policy.Restored(n.Labels, r.Labels), Marker: r.Version}
}

// onlyNoted is a note that takes no account of the Node's labels.
func onlyNoted(r record.Record, n *preserve.Node) record.Record {
	r.Restored = record.Restoration{UID: n.UID, ResourceVersion: n.ResourceVersion}
	return r
}

func isAfter(rv, other string) bool {
	return other == "" || txn.Compare(txn.Transaction{ResourceVersion: rv}, txn.Transaction{ResourceVersion: other}) > 0
}

func bySource(t txn.Transaction, r record.Record) bool {
	return t.UID == r.Source && isAfter(t.ResourceVersion, r.Version)
}

func byRestored(t txn.Transaction, r record.Record) bool {
	return t.UID == r.Restored.UID && isAfter(t.ResourceVersion, r.Restored.ResourceVersion)
}

func byMarker(t txn.Transaction, r record.Record) bool {
	return t.Marker == r.Version && !bySource(t, r) && !byRestored(t, r) && isAfter(t.ResourceVersion, r.Restored.ResourceVersion)
}

// differs says whether a decision replaces the labels.
func differs(d preserve.Decision, r record.Record) bool {
	return d.Action == preserve.Save && d.Record.Version != r.Version
}

var nothing = preserve.Decision{Action: preserve.Nothing}

// mutants are the rules of the decision table, each broken in turn, and the habits of the processor that go with them.
// Three rules are not here, because less than one schedule in half a million needs them: that a later event with the same
// labels moves the version on, that a restore is noted at the Node's resourceVersion and not at the transaction's, and that
// it is not noted after a later incarnation's. The tables of internal/preserve test them.
var mutants = map[string]mutant{
	"save: no record, and none is made of a delete": {decide: func(t txn.Transaction, r *record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if r == nil && t.Type != txn.Added {
			return nothing
		}
		return d
	}},
	"save: an older event of the source counts": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if t.UID == r.Source && d.Action == preserve.Nothing && !maps.Equal(t.Labels, r.Labels) {
			return saved(captured(t))
		}
		return d
	}),
	"save: an older event of the restored incarnation counts": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if t.UID == r.Restored.UID && d.Action == preserve.Nothing && !maps.Equal(t.Labels, r.Labels) {
			return saved(captured(t))
		}
		return d
	}),
	"save: the source does not count": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if bySource(t, r) && !byRestored(t, r) && !byMarker(t, r) {
			return nothing
		}
		return d
	}),
	"save: the restored incarnation does not count": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if byRestored(t, r) && !bySource(t, r) && !byMarker(t, r) {
			return nothing
		}
		return d
	}),
	"save: the marker does not count": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if byMarker(t, r) && !bySource(t, r) && !byRestored(t, r) {
			return nothing
		}
		return d
	}),
	"save: any marker counts": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if t.Marker != "" && d.Action == preserve.Nothing && !maps.Equal(t.Labels, r.Labels) {
			return saved(captured(t))
		}
		return d
	}),
	"save: every incarnation counts": saving(func(t txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Nothing && isAfter(t.ResourceVersion, r.Version) && !maps.Equal(t.Labels, r.Labels) {
			return saved(captured(t))
		}
		return d
	}),
	"save: changed labels are not saved": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if differs(d, r) {
			return nothing
		}
		return d
	}),
	"save: the restore is not forgotten": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if differs(d, r) {
			d.Record.Restored = r.Restored
		}
		return d
	}),
	"save: the source stays": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if differs(d, r) {
			d.Record.Source = r.Source
		}
		return d
	}),
	"save: the version stays": saving(func(_ txn.Transaction, r record.Record, d preserve.Decision) preserve.Decision {
		if differs(d, r) {
			d.Record.Version = r.Version
		}
		return d
	}),
	"restore: labels changed since are not saved": restoring(func(_ txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save {
			return saved(onlyNoted(r, n))
		}
		return d
	}),
	"restore: onto another incarnation": restoring(func(t txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.UID != t.UID {
			return restored(r, n)
		}
		return d
	}),
	"restore: onto the source": restoring(func(t txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.UID == t.UID && n.UID == r.Source {
			return restored(r, n)
		}
		return d
	}),
	"restore: onto the restored incarnation": restoring(func(t txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.UID == t.UID && n.UID == r.Restored.UID && n.Marker != r.Version {
			return restored(r, n)
		}
		return d
	}),
	"restore: the marker does not count": restoring(func(_ txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.Marker == r.Version && d.Action == preserve.Save {
			return restored(r, n)
		}
		return d
	}),
	"restore: any marker counts": restoring(func(_ txn.Transaction, r record.Record, n *preserve.Node, d preserve.Decision) preserve.Decision {
		if n != nil && n.Marker != "" && d.Action == preserve.Restore {
			return saved(onlyNoted(r, n))
		}
		return d
	}),
	"restore: not done": restoring(func(_ txn.Transaction, _ record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			return nothing
		}
		return d
	}),
	"restore: without the marker": restoring(func(_ txn.Transaction, _ record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			d.Marker = ""
		}
		return d
	}),
	"restore: not noted after a crash": restoring(func(_ txn.Transaction, _ record.Record, _ *preserve.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save {
			return nothing
		}
		return d
	}),
	"processor: drops on a cached read":           {carries: carrying{dropsOnCache: true}},
	"processor: restores from a cached record":    {carries: carrying{restoresFromCache: true}},
	"processor: reads the record before the node": {carries: carrying{recordFirst: true}},
	"processor: removes before the effect":        {carries: carrying{removesFirst: true}},
	"processor: patches unconditionally":          {carries: carrying{patchesBlindly: true}},
	"processor: saves unconditionally":            {carries: carrying{savesBlindly: true}},
	"processor: does not note a restore":          {carries: carrying{notesNothing: true}},
	"watcher: no head start":                      {carries: carrying{noHeadStart: true}},
}
