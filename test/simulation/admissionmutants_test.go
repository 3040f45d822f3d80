package simulation

import (
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// opening returns a mutant of the decision about a Node with the startup taint.
func opening(f func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision) mutant {
	return mutant{decide: func(t txn.Transaction, r *record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if t.Type != txn.Added || n == nil || n.UID != t.UID || !n.Gated {
			return d
		}
		return f(t, r, n, d)
	}}.among(admissions)
}

// admitting returns a mutant of the webhook's answer.
func admitting(f func(r record.Record, req preserve.Request, answer preserve.Admission) preserve.Admission) mutant {
	return mutant{admit: f}.among(admissions)
}

// isRestoredBy reports whether a transaction shows a Node with the marker and the labels of a
// record.
func isRestoredBy(t txn.Transaction, r record.Record) bool {
	return t.Marker == r.Revision.String() && maps.Equal(t.Labels, r.Labels)
}

var opened = preserve.Decision{Action: preserve.Open}

// admissionMutants break the rules about Nodes that the webhook has admitted, and about the startup
// taint. They are part of [mutants].
var admissionMutants = map[string]mutant{
	"webhook: a stale marker counts": restoring(func(_ txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore && !n.Gated && n.Admitted.Set()[labels.Marker] {
			return saved(onlyNoted(r, *n))
		}
		return d
	}).among(admissions),
	"webhook: what it gave is the node's own": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action != preserve.Restore {
			return d
		}
		other := *n
		other.Admitted = ""
		return preserve.Decide(t, &r, &other, policy)
	}).among(admissions),
	"webhook: the marker covers what is held back": admitting(func(r record.Record, _ preserve.Request, answer preserve.Admission) preserve.Admission {
		if answer.Held != "" {
			answer.Marker = r.Revision.String()
		}
		return answer
	}),
	"webhook: a kubelet gets every label": admitting(func(r record.Record, req preserve.Request, _ preserve.Admission) preserve.Admission {
		req.Kubelet = false
		return preserve.Admit(&r, req, policy)
	}),
	"webhook: the marker without the labels": admitting(func(r record.Record, req preserve.Request, answer preserve.Admission) preserve.Admission {
		if answer.Restores() {
			answer.Labels, answer.Marker = req.Node.Labels, r.Revision.String()
		}
		return answer
	}),
	"webhook: admits from a floor": admitting(func(r record.Record, req preserve.Request, _ preserve.Admission) preserve.Admission {
		r.Floor = false
		return preserve.Admit(&r, req, policy)
	}).among(admissionsAfterRemovals),
	"webhook: every machine gets the restricted labels": admitting(func(r record.Record, req preserve.Request, _ preserve.Admission) preserve.Admission {
		other := policy
		other.Restricted = labels.Keep
		return preserve.Admit(&r, req, other)
	}).among(trustedAdmissions),
	"webhook: a machine without an identity is the same": admitting(func(r record.Record, req preserve.Request, _ preserve.Admission) preserve.Admission {
		if req.Node.Identity.IsZero() {
			req.Node.Identity = r.Identity.Identity
		}
		return preserve.Admit(&r, req, policy)
	}).among(trustedAdmissions),
	"webhook: a restricted label that it gave counts as set by a user": restoring(func(t txn.Transaction, r record.Record, n *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action != preserve.Restore {
			return d
		}
		other := *n
		other.Admitted = n.Admitted.Where(func(key string) bool { return !isTrust(key, "") })
		return preserve.Decide(t, &r, &other, policy)
	}).among(trustedBehind),
	// According to the watcher's cache the record is right. Transactions that are already in the queue
	// may change it.
	"webhook: the return of a node that has its labels is not recorded": mutant{leavesAdmitted: true}.among(admissionsUnnoted),
	"gate: opened, and nothing is saved": opening(func(_ txn.Transaction, _ *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save {
			return opened
		}
		return d
	}),
	"gate: opened before the restore": opening(func(_ txn.Transaction, _ *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			return preserve.Decision{Action: preserve.Open, Again: true}
		}
		return d
	}),
	"gate: opened instead of the restore": opening(func(_ txn.Transaction, _ *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Restore {
			return opened
		}
		return d
	}),
	"gate: not opened if there is nothing to restore": opening(func(_ txn.Transaction, _ *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Open {
			return nothing
		}
		return d
	}),
	"gate: not opened after the first save": opening(func(_ txn.Transaction, r *record.Record, _ *nodeview.Node, d preserve.Decision) preserve.Decision {
		if d.Action == preserve.Save && r == nil {
			d.Again = false
		}
		return d
	}),
	"gate: a later closing is not recorded": observing(func(before, after *nodeview.Node, _ bool, transactions []txn.Transaction) []txn.Transaction {
		if before != nil && after != nil && before.UID == after.UID && len(transactions) == 1 && transactions[0].Type == txn.Added {
			return nil
		}
		return transactions
	}).among(admissions),
	"gate: a possible closing in a gap is not recorded": mutant{trustsGates: true}.shownBy(closesAgainInAGap),
	"gate: a waiting node that has its labels is ignored": mutant{knows: func(t txn.Transaction, r *record.Record, _ []*storedTxn) bool {
		t.Marker = ""
		return r != nil && preserve.Applied(t, *r, policy.MachineBound)
	}}.among(admissionsAfterRemovals),
}
