package preserve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// NeedsIdentity reports whether a plan for these transactions may depend on which machine the Node
// is.
func NeedsIdentity(queue []txn.Transaction, r *record.Record) bool {
	if r != nil && r.Floor {
		r = nil
	}
	for _, t := range queue {
		if t.Type == txn.Added && concernsMachines(r) {
			return true
		}
		if !HasRestricted(t.Labels, t.Machine) {
			continue
		}
		known := identityOf(t.UID, r, nil)
		// What is gone does not say more.
		isGone := slices.ContainsFunc(queue, func(other txn.Transaction) bool { return other.UID == t.UID && other.Type == txn.Deleted })
		if known.UID == "" || !known.IsComplete() && !isGone {
			return true
		}
	}
	return false
}

// IdentityOwed reports whether a record does not say which machine its restricted labels came from,
// while an incarnation that has them is there and can be asked. A record of a former release, and one
// of a Node that was gone before it was read, does not.
func IdentityOwed(r record.Record, uid types.UID) bool {
	return isSourceOrRestored(r, uid) && r.Identity.UID != uid && HasRestricted(r.Labels, r.Machine)
}

// identityOf returns which machine an incarnation is: as the Node says if it is that one and was
// read, or else as the record does. A Node that says less than before is the same machine all the
// same.
func identityOf(uid types.UID, r *record.Record, n *Node) record.Identity {
	var known record.Identity
	if r != nil {
		for _, w := range r.Withheld {
			if w.Source == uid && !w.Identity.IsZero() {
				known = record.Identity{UID: uid, Identity: w.Identity}
			}
		}
		if r.Identity.UID == uid {
			known = r.Identity
		}
	}
	if n == nil || n.UID != uid || !n.IdentityRead {
		return known
	}
	if n.Identity.Contradicts(known.Identity) {
		return record.Identity{UID: uid, Identity: n.Identity}
	}
	return record.Identity{UID: uid, Identity: n.Identity.Filled(known.Identity)}
}

// identify notes in a record which machine an incarnation is, if the record has anything that depends
// on it. r is the record before, nil if there was none. That a Node had said nothing holds for the
// restricted labels that it had then: a kubelet may have joined it since, and been trusted.
func identify(next *record.Record, uid types.UID, r *record.Record, n *Node) {
	next.Identity = record.Identity{}
	trusted := restrictedOf(next.Labels, next.Machine)
	if len(trusted) == 0 {
		return
	}
	known := identityOf(uid, r, n)
	isLive := n != nil && n.UID == uid && n.IdentityRead
	if r != nil {
		known = filledByDecided(known, uid, *r)
	}
	if isLive || !known.IsZero() || r != nil && maps.Equal(trusted, restrictedOf(r.Labels, r.Machine)) {
		next.Identity = known
	}
}

// filledByDecided returns which machine an incarnation is that got withheld labels with the others: it
// is the one that these were saved from, and may not have said all of that yet.
func filledByDecided(known record.Identity, uid types.UID, r record.Record) record.Identity {
	for _, w := range r.Withheld {
		if isDecidedFor(w, uid) && identity.Compare(w.Identity, known.Identity) == identity.Same {
			known.Identity = known.Filled(w.Identity)
		}
	}
	return known
}

// judgeLabels returns why a returned Node does not get the restricted labels of a record, or putBack.
func judgeLabels(r record.Record, n *Node, p labels.Policy) Why {
	switch {
	case p.Restricted == labels.Drop:
		return Dropped
	case p.Restricted == labels.Keep:
		return putBack
	case !isBound(r):
		return putBack
	case r.Identity.UID == "":
		return UnknownMachine
	}
	return judge(r.Identity.Identity, n)
}

// isBound reports whether the restricted labels among those of a record belong to one machine. They
// do not if people have given them to the name, or if the name is all that the former Node had.
func isBound(r record.Record) bool {
	if r.Identity.UID == "" {
		return r.Source != "" || r.Restored.UID != ""
	}
	return !r.Identity.IsZero()
}

// judgeWithheld returns why a Node does not get withheld labels, or putBack.
func judgeWithheld(w record.Withheld, n *Node, p labels.Policy) Why {
	switch {
	case p.Restricted == labels.Drop:
		return Dropped
	case p.Restricted == labels.Keep:
		return putBack
	case w.Identity.IsZero():
		return UnknownMachine
	}
	return judge(w.Identity, n)
}

func judge(saved identity.Identity, n *Node) Why {
	if !n.IdentityRead {
		return Waiting
	}
	switch identity.Compare(saved, n.Identity) {
	case identity.Same:
		return putBack
	case identity.Other:
		return OtherMachine
	case identity.Undecided:
	}
	return Waiting
}

// resolve returns the record that a restore onto a Node begins with: among the labels are none that
// this machine does not get, and the withheld ones that it gets are decided for it. It is stored before
// the restore, so that a restore which was done and not noted shows what it has put back. What is
// decided stays apart until then: a late state of a former incarnation replaces only its own labels. It
// returns the same record if nothing changes.
//
// A record that shows another incarnation in a later state than the Node is not changed: the Node was
// read before that one came, and the restore fails.
func resolve(r record.Record, n *Node, p labels.Policy) (next record.Record, held []Held, changed bool) {
	if r.Source != "" && r.Revision.After(n.Revision) || r.Restored.Revision.After(n.Revision) {
		return r, nil, false
	}
	next = r
	next.Withheld = nil
	if judgeLabels(r, n, p) != putBack {
		moved := restrictedOf(r.Labels, r.Machine)
		maps.DeleteFunc(moved, func(key, _ string) bool { return p.Ignored.Match(key) })
		changed = withhold(&next, r, moved)
	}
	for _, w := range r.Withheld {
		isDecided := judgeWithheld(w, n, p) == putBack
		switch {
		case isDecided && !isDecidedFor(w, n.UID):
			w.Marker, w.WaitingFor, w.PutBack, changed = n.Revision.String(), n.UID, revision.Revision{}, true
		case !isDecided && w.Marker != "" && w.PutBack.IsZero():
			w.Marker, w.WaitingFor, changed = "", "", true
		}
		next.Withheld = append(next.Withheld, w)
	}
	if p.Restricted == labels.Drop && len(next.Withheld) > 0 {
		held = []Held{{Keys: next.WithheldKeys(), Why: Dropped}}
		next.Withheld, changed = nil, true
	}
	var without labels.Keys
	if next.Withheld, without = record.Bounded(next.Withheld); without != "" {
		held = append(held, Held{Keys: without, Why: NoRoom})
	}
	return next, held, changed
}

// isDecidedFor reports whether a restore onto an incarnation puts withheld labels back, too.
func isDecidedFor(w record.Withheld, uid types.UID) bool {
	return w.Marker != "" && w.WaitingFor == uid && w.PutBack.IsZero()
}

// withDecided returns what a restore onto an incarnation takes from a record: also the withheld labels
// that are decided for it.
func withDecided(r record.Record, uid types.UID) labels.Side {
	var kept []record.Withheld
	for _, w := range r.Withheld {
		if !isDecidedFor(w, uid) {
			kept = append(kept, w)
			continue
		}
		r.Labels = maps.Clone(r.Labels)
		maps.Copy(r.Labels, w.Labels)
	}
	r.Withheld = kept
	return Saved(r)
}
