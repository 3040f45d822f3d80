package simulation

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// trusting returns a mutant of the rules about labels of a machine that apply if there is a record.
func trusting(f func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if r == nil || r.Floor {
			return d
		}
		return f(t, *r, n, d)
	}}.among(machines)
}

// byPolicy returns a mutant that decides by another policy.
func byPolicy(mode labels.RestrictedMode) mutant {
	return trusting(func(t txn.Transaction, r record.Record, n *nodeview.Node, _ preserve.Decision) preserve.Decision {
		other := policy
		other.Restricted = mode
		return preserve.Decide(t, &r, n, other)
	})
}

// believingNodes returns a mutant that decides as if a Node had reported another identity.
func believingNodes(what func(said identity.Identity, r record.Record) identity.Identity) mutant {
	return trusting(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if n == nil {
			return d
		}
		other := *n
		other.Identity = what(n.Identity, r)
		return preserve.Decide(t, &r, &other, policy)
	})
}

// forgettingWithheld returns a mutant of one kind of saves that drops all withheld labels.
func forgettingWithheld(isCase func(t txn.Transaction, r record.Record, d preserve.Decision) bool) mutant {
	return trusting(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && isCase(t, r, d) {
			d.Record.Withheld = nil
		}
		return d
	})
}

// trustMutants break the rules about labels of a machine. They are part of [mutants].
var trustMutants = map[string]mutant{
	"trust: every machine gets the labels": byPolicy(labels.Keep),
	"trust: no machine gets the labels":    byPolicy(labels.Drop),
	"trust: state of a machine belongs to the name": trusting(func(t txn.Transaction, r record.Record, n *nodeview.Node, _ preserve.Decision) preserve.Decision {
		other := policy
		other.MachineBound = labels.MachineBound{}
		return preserve.Decide(t, &r, n, other)
	}).among(states),
	"trust: a machine without an identity is the same": believingNodes(func(said identity.Identity, r record.Record) identity.Identity {
		if !said.IsZero() {
			return said
		}
		for _, w := range r.Withheld {
			said = w.Identity
		}
		return said.Filled(r.Identity.Identity)
	}),
	"trust: a machine without an identity is another one": believingNodes(func(said identity.Identity, _ record.Record) identity.Identity {
		return said.Filled(identity.Identity{SystemUUID: "another"})
	}),
	"trust: there is no recheck":                               mutant{neverRechecks: true}.among(lateMachines),
	"trust: what is withheld is forgotten when it is withheld": forgettingWithheld(func(_ txn.Transaction, _ record.Record, d preserve.Decision) bool { return d.Again }),
	"trust: what is withheld is forgotten with the next save": forgettingWithheld(func(t txn.Transaction, _ record.Record, d preserve.Decision) bool {
		return !d.Again && t.Type == txn.Updated
	}),
	"trust: what is withheld is forgotten with the end of an incarnation": forgettingWithheld(func(t txn.Transaction, _ record.Record, d preserve.Decision) bool {
		return !d.Again && t.Type == txn.Deleted
	}),
	"trust: what is withheld is forgotten with a restore": mutant{
		note: func(_ txn.Transaction, _ record.Record, _ nodeview.Node, next record.Record) record.Record {
			next.Withheld = nil
			return next
		},
	}.among(machines),
	"trust: a label that was set since does not count": trusting(func(_ txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && !d.Again && d.Record.Revision != r.Revision {
			d.Record.Labels = maps.Clone(d.Record.Labels)
			for _, w := range r.Withheld {
				maps.Copy(d.Record.Labels, w.Labels)
			}
		}
		return d
	}),
	"trust: what was put back stays withheld": trusting(func(t txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action != preserve.Save || d.Again || t.Type == txn.Added {
			return d
		}
		if len(plain(d.Record.Labels)) == len(d.Record.Labels) {
			d.Record.Withheld = r.Withheld
		}
		return d
	}).among(lateMachines).shownBy(trustedNoMore),
	"trust: putting back undoes edits": trusting(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore && d.Again && n.UID == r.Source {
			trusted := maps.Clone(d.Labels)
			maps.DeleteFunc(trusted, func(key, value string) bool { return !isTrust(key, value) })
			d.Labels = maps.Clone(r.Labels)
			maps.Copy(d.Labels, trusted)
		}
		return d
	}).among(lateMachines),
	"trust: which machine it was is not noted": trusting(func(_ txn.Transaction, _ record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && !d.Again {
			d.Record.Identity = record.Identity{}
		}
		return d
	}),
	"trust: a former machine's identity stays": trusting(func(_ txn.Transaction, r record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && !d.Again && r.Identity.UID != "" && d.Record.Identity.UID != "" {
			d.Record.Identity = record.Identity{UID: d.Record.Identity.UID, Identity: r.Identity.Identity}
		}
		return d
	}).among(lateMachines).shownBy(anothersLabels),
	"trust: put back without a marker of its own": trusting(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore && d.Again && n.UID == r.Source {
			d.Marker = n.Marker
		}
		return d
	}).among(lateMachines).shownBy(putBackAndNotNoted),
}
