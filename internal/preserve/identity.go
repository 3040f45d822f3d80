package preserve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// NeedsIdentity reports whether a plan for these transactions may depend on the machine's identity.
func NeedsIdentity(queue []txn.Transaction, r *record.Record, bound labels.MachineBound) bool {
	if r != nil && r.Floor {
		r = nil
	}
	isAdded := func(t txn.Transaction) bool { return t.Type == txn.Added }
	if concernsMachines(r, bound) && (slices.ContainsFunc(queue, isAdded) || mayBeStranded(queue, r)) {
		return true
	}
	for _, t := range queue {
		if t = merged(t, r); !hasBound(t.Labels, t.Machine, bound) {
			continue
		}
		id := identityOf(t.UID, r, nil)
		// A deleted Node reveals nothing more. The end that a processor saves before it removes the
		// finalizer is of a Node that still exists; that of a late edit costs one vain read.
		isGone := slices.ContainsFunc(queue, func(other txn.Transaction) bool {
			return other.UID == t.UID && other.Type == txn.Deleted && !other.ByProcessor
		})
		if id.UID == "" || !id.IsComplete() && !isGone {
			return true
		}
	}
	return false
}

// IdentityOwed reports whether a record lacks the machine that its labels belong to while an
// incarnation that has them exists and can be read. This applies to records of former releases, and
// to those of Nodes that were deleted before they were read.
func IdentityOwed(r record.Record, uid types.UID, bound labels.MachineBound) bool {
	return isSourceOrRestored(r, uid) && r.Identity.UID != uid && hasBound(r.Labels, r.Machine, bound)
}

// identityOf returns an incarnation's identity: from the Node if it is that incarnation and was
// read, otherwise from the record. A Node that reports less than before is still the same machine.
func identityOf(uid types.UID, r *record.Record, n *nodeview.Node) record.Identity {
	var id record.Identity
	if r != nil {
		for _, w := range r.Withheld {
			if w.Source == uid && !w.Identity.IsZero() {
				id = record.Identity{UID: uid, Identity: w.Identity}
			}
		}
		if r.Identity.UID == uid {
			id = r.Identity
		}
	}
	if n == nil || n.UID != uid || !n.IsWhole {
		return id
	}
	if n.Identity.Contradicts(id.Identity) {
		return record.Identity{UID: uid, Identity: n.Identity}
	}
	return record.Identity{UID: uid, Identity: n.Identity.Filled(id.Identity)}
}

// identify sets the identity of an incarnation in a record that depends on it. r is the previous
// record, nil if there was none. An empty identity applies only to the labels that the Node had when
// it was read: a kubelet may have joined and been trusted since.
func identify(next *record.Record, uid types.UID, r *record.Record, n *nodeview.Node, bound labels.MachineBound) {
	next.Identity = record.Identity{}
	saved := boundOf(next.Labels, next.Machine, bound)
	if len(saved) == 0 {
		return
	}
	if n != nil && n.Identity.IsZero() && next.Revision.After(n.Revision) {
		n = nil // it was read before it had these labels
	}
	id := identityOf(uid, r, n)
	isLive := n != nil && n.UID == uid && n.IsWhole
	if r != nil {
		id = filledByDecided(id, uid, *r)
	}
	if isLive || !id.IsZero() || r != nil && maps.Equal(saved, boundOf(r.Labels, r.Machine, bound)) {
		next.Identity = id
	}
}

// filledByDecided completes the identity of an incarnation that gets withheld labels together with
// the others. It is the machine that these were saved from, and may not have reported its full
// identity yet.
func filledByDecided(id record.Identity, uid types.UID, r record.Record) record.Identity {
	for _, w := range r.Withheld {
		if w.State.IsDecidedFor(uid) && identity.Compare(w.Identity, id.Identity) == identity.Same {
			id.Identity = id.Filled(w.Identity)
		}
	}
	return id
}

// withheldFrom returns the labels of a record that a returned Node does not get, because it may not
// be their machine, or because the policy never restores them.
func withheldFrom(r record.Record, n *nodeview.Node, p labels.Policy) map[string]string {
	withheld := boundOf(r.Labels, r.Machine, p.MachineBound)
	isTheirs := len(withheld) > 0 && checkLabels(r, n) == granted
	maps.DeleteFunc(withheld, func(key, _ string) bool {
		mode := p.ModeOf(key)
		return mode == labels.Keep || mode == labels.SameMachine && isTheirs
	})
	return withheld
}

// checkLabels returns why a returned Node does not get the labels of a record that belong to a
// machine, or granted.
func checkLabels(r record.Record, n *nodeview.Node) Why {
	switch {
	case !isBound(r):
		return granted
	case r.Identity.UID == "":
		return UnknownMachine
	}
	return checkMachine(r.Identity.Identity, n)
}

// isBound reports whether the labels of a record are from one machine. They are not if users
// have assigned them to the name, or if the former Node had no identity but its name.
func isBound(r record.Record) bool {
	if r.Identity.UID == "" {
		return r.Source != "" || r.Restored.UID != ""
	}
	return !r.Identity.IsZero()
}

// checkWithheld returns why a Node does not get withheld labels of one mode, see [ByMode], or
// granted.
func checkWithheld(w record.Withheld, n *nodeview.Node, p labels.Policy) Why {
	switch ModeOf(w, p) {
	case labels.Drop:
		return Dropped
	case labels.Keep:
		return granted
	case labels.SameMachine:
	}
	switch isOfName := w.State.IsRefused() || w.State.IsDecided(); {
	case !w.Identity.IsZero():
		return checkMachine(w.Identity, n)
	case isOfName: // otherwise it would never have been decided
		return granted
	}
	return UnknownMachine
}

// mayBeTheirs reports whether a returned Node may be the machine of a record's labels. What users
// have removed from another machine is not removed from this one, except restricted labels.
func mayBeTheirs(r record.Record, n *nodeview.Node) bool {
	why := checkLabels(r, n)
	return why == granted || why == Waiting
}

func checkMachine(saved identity.Identity, n *nodeview.Node) Why {
	if !n.IsWhole {
		return Waiting
	}
	switch n.Compare(saved) {
	case identity.Same:
		return granted
	case identity.Other:
		return OtherMachine
	case identity.Undecided:
	}
	return Waiting
}

// resolve returns the record from which a restore onto a Node starts: it moves the labels that this
// machine does not get to the withheld ones, and marks the withheld labels that it does get. The
// record is stored before the restore, so that after an unnoted restore it is known which labels
// were restored. Marked labels stay separate until then, because a late state of a former
// incarnation replaces only its own labels. If nothing changes, resolve returns the same record.
//
// If the record contains a later state of another incarnation than the Node's, it is not changed:
// the Node was read before that incarnation appeared, and the restore fails.
func resolve(r record.Record, n *nodeview.Node, p labels.Policy) (next record.Record, held []Held, changed bool) {
	if r.Source != "" && r.Revision.After(n.Revision) || r.Restored.Revision.After(n.Revision) {
		return r, nil, false
	}
	next = r
	next.Withheld = nil
	moved := withheldFrom(r, n, p)
	maps.DeleteFunc(moved, func(key, _ string) bool { return p.Ignored.Match(key) })
	if changed = withhold(&next, r, moved); changed && !mayBeTheirs(r, n) {
		next.Overruled = next.Overruled.Where(func(key string) bool { return labels.Restricted(key) || !p.MachineBound.Match(key) })
	}
	for _, w := range ByMode(r.Withheld, p) {
		if w.IsLeft() && w.Source != n.UID {
			changed = true
			continue
		}
		isDecided := checkWithheld(w, n, p) == granted && !w.State.IsRefusedFor(n.UID)
		switch {
		case isDecided && !w.State.IsDecidedFor(n.UID):
			next = withoutBeside(next, w)
			w.State, changed = record.DecidedFor(n.UID, n.Revision.String()), true
		case !isDecided && w.State.IsDecided():
			w.State, changed = record.Kept, true
		}
		next.Withheld = append(next.Withheld, w)
	}
	var dropped labels.Keys
	if next.Withheld, dropped = withoutDropped(next.Withheld, p); dropped != "" {
		held, changed = []Held{{Keys: dropped, Why: Dropped}}, true
	}
	var without labels.Keys
	if next.Withheld, without = record.Bounded(next.Withheld); without != "" {
		held = append(held, Held{Keys: without, Why: NoRoom})
	}
	return next, held, changed
}

// withDecided returns the part of a record that a restore onto an incarnation uses, including the
// withheld labels that are marked for it.
func withDecided(r record.Record, uid types.UID) labels.Side {
	var others []record.Withheld
	for _, w := range r.Withheld {
		if !w.State.IsDecidedFor(uid) {
			others = append(others, w)
			continue
		}
		// Where the former machine kept a value of its own, that one is not restored.
		keys := labels.KeysOf(maps.Keys(w.Labels))
		own := keys.Without(keys.Missing(r.Labels))
		r.Machine, r.Unclear = r.Machine.Without(own), r.Unclear.Without(own)
		r.Labels = maps.Clone(r.Labels)
		maps.Copy(r.Labels, w.Labels)
	}
	r.Withheld = others
	return Saved(r)
}
