package preserve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Why is why restricted labels are not put back.
type Why string

const (
	// Waiting means that the Node has not said which machine it is.
	Waiting Why = "waiting"
	// OtherMachine means that it is not the machine that they were saved from.
	OtherMachine Why = "other-machine"
	// UnknownMachine means that nobody knows which machine they were saved from.
	UnknownMachine Why = "unknown-machine"
	// Dropped means that restricted labels are never put back.
	Dropped Why = "dropped"

	// putBack means that they are put back.
	putBack Why = ""
)

// Held is restricted labels that a decision does not put back, and why.
type Held struct {
	Keys labels.Keys
	Why  Why
}

// restrictedOf returns the restricted labels that are not the machine's own: its agents set those
// again by themselves.
func restrictedOf(own map[string]string, machine labels.Keys) map[string]string {
	var found map[string]string
	for key, value := range own {
		if labels.Restricted(key) && !slices.Contains(slices.Collect(machine.All()), key) {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}

// HasRestricted reports whether there are restricted labels that are not the machine's own.
func HasRestricted(own map[string]string, machine labels.Keys) bool {
	return len(restrictedOf(own, machine)) > 0
}

// GainsRestricted reports whether labels have restricted ones, which are not the machine's own, that
// they did not have before, or with another value.
func GainsRestricted(before, after map[string]string, machine labels.Keys) bool {
	for key, value := range restrictedOf(after, machine) {
		if former, isThere := before[key]; !isThere || former != value {
			return true
		}
	}
	return false
}

// concernsMachines reports whether a restore of a record depends on which machine has returned.
func concernsMachines(r *record.Record) bool {
	return r != nil && (len(r.Withheld) > 0 || HasRestricted(r.Labels, r.Machine))
}

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
	if isLive || !known.IsZero() || r != nil && maps.Equal(trusted, restrictedOf(r.Labels, r.Machine)) {
		next.Identity = known
	}
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

// resolve returns the record that a restore onto a Node begins with: among the labels are just those
// that this machine gets. It is stored before the restore, so that a restore which was done and not
// noted shows what it has put back. It returns the same record if there is nothing to move.
//
// A record that shows another incarnation in a later state than the Node is not changed: the Node was
// read before that one came, and the restore fails.
func resolve(r record.Record, n *Node, p labels.Policy) (next record.Record, held []Held, changed bool) {
	if r.Source != "" && r.Revision.After(n.Revision) || r.Restored.Revision.After(n.Revision) {
		return r, nil, false
	}
	next = r
	why := judgeLabels(r, n, p)
	next.Withheld = nil
	if why != putBack {
		moved := restrictedOf(r.Labels, r.Machine)
		maps.DeleteFunc(moved, func(key, _ string) bool { return p.Ignored.Match(key) })
		changed = withhold(&next, r, moved)
	}
	for _, w := range r.Withheld {
		if judgeWithheld(w, n, p) != putBack {
			next.Withheld = append(next.Withheld, w)
			continue
		}
		next.Labels = maps.Clone(next.Labels)
		maps.Copy(next.Labels, w.Labels)
		next.Identity = identityOf(n.UID, nil, n)
		changed = true
	}
	next.Withheld = record.Bounded(next.Withheld)
	if p.Restricted == labels.Drop && len(next.Withheld) > 0 {
		held = []Held{{Keys: next.WithheldKeys(), Why: Dropped}}
		next.Withheld, changed = nil, true
	}
	return next, held, changed
}

// withhold moves labels of a record into a set of their own, if there are any.
func withhold(next *record.Record, r record.Record, moved map[string]string) bool {
	if len(moved) == 0 {
		return false
	}
	next.Labels = maps.Clone(next.Labels)
	for key := range moved {
		delete(next.Labels, key)
	}
	source := r.Source
	if r.Restored.UID != "" {
		source = r.Restored.UID
	}
	next.Identity = record.Identity{}
	next.Withheld = append([]record.Withheld{{Labels: moved, Source: source, Identity: r.Identity.Identity}}, next.Withheld...)
	return true
}

// heldFrom returns which withheld labels a Node does not get, and why.
func heldFrom(r record.Record, n *Node, p labels.Policy) []Held {
	var held []Held
	for _, w := range r.Withheld {
		keys := labels.KeysOf(maps.Keys(w.Labels)).Missing(n.Labels)
		if why := judgeWithheld(w, n, p); why != putBack && keys != "" {
			held = append(held, Held{Keys: keys, Why: why})
		}
	}
	return held
}

// waits reports whether labels that are held wait for the Node.
func waits(held []Held) bool {
	return slices.ContainsFunc(held, func(h Held) bool { return h.Why == Waiting })
}

// decideOwner decides about an Added transaction of an incarnation that has the labels of the record:
// whether it gets withheld ones, too.
func decideOwner(r record.Record, n *Node, p labels.Policy) Decision {
	next := r
	if n.IdentityRead && r.Identity.UID != n.UID {
		identify(&next, n.UID, &r, n)
	}
	var held []Held
	next.Withheld, held = judged(r.Withheld, n, p)
	if !next.Equal(r) {
		d := save(next, "which machine the node is")
		d.Again, d.Held = true, held
		return d
	}
	for _, w := range r.Withheld {
		if w.Marker != "" && w.PutBack.IsZero() {
			return putBackOnto(n, r, w.Marker, p)
		}
	}
	if r.WaitsFor(n.UID) {
		return nothing("restricted labels wait until the node says which machine it is")
	}
	return nothing("this incarnation has its labels")
}

// Look returns the transaction that stands for the wait of an incarnation, if a record has labels that
// wait: to decide about it is to look whether the Node says by now which machine it is.
func Look(r record.Record) (t txn.Transaction, waits bool) {
	for _, w := range r.Withheld {
		if w.WaitingFor != "" {
			return txn.Transaction{Type: txn.Added, Node: r.Node, UID: w.WaitingFor, Revision: r.Revision}, true
		}
	}
	return txn.Transaction{}, false
}

// waitedFor returns a record in which nothing waits for an incarnation.
func waitedFor(r record.Record, uid types.UID) record.Record {
	r.Withheld = slices.Clone(r.Withheld)
	for i := range r.Withheld {
		if r.Withheld[i].WaitingFor == uid {
			r.Withheld[i].WaitingFor = ""
		}
	}
	return r
}

// judged returns the withheld labels with what becomes of them on a Node, and which have ceased to
// wait without being put back.
func judged(sets []record.Withheld, n *Node, p labels.Policy) (next []record.Withheld, held []Held) {
	for _, w := range sets {
		switch {
		case !w.PutBack.IsZero() && p.Restricted != labels.Drop:
			next = append(next, w)
			continue
		case w.Marker != "" && n.Marker == w.Marker:
			w.PutBack, w.WaitingFor = n.Revision, ""
			next = append(next, w)
			continue
		case w.Marker != "" && p.Restricted != labels.Drop: // decided: another processor may be about to do it
			next = append(next, w)
			continue
		}
		wasWaiting := w.WaitingFor == n.UID
		why := judgeWithheld(w, n, p)
		w.WaitingFor = ""
		switch why {
		case putBack:
			w.Marker = n.Revision.String()
			if labels.KeysOf(maps.Keys(w.Labels)).Missing(n.Labels) == "" {
				w.PutBack = n.Revision // somebody has set them all
			}
		case Waiting:
			w.WaitingFor = n.UID
		case OtherMachine, UnknownMachine, Dropped:
			if keys := labels.KeysOf(maps.Keys(w.Labels)).Missing(n.Labels); wasWaiting && keys != "" {
				held = append(held, Held{Keys: keys, Why: why})
			}
		}
		if why != Dropped {
			next = append(next, w)
		}
	}
	return next, held
}

// putBackOnto returns the decision to give a Node that has its other labels the withheld ones that
// are decided with a marker. What somebody else has set meanwhile stays.
func putBackOnto(n *Node, r record.Record, marker string, p labels.Policy) Decision {
	own := maps.Clone(n.Labels)
	for _, w := range r.Withheld {
		if w.Marker != marker || !w.PutBack.IsZero() {
			continue
		}
		for key, value := range w.Labels {
			if _, isSet := own[key]; !isSet && !p.Ignored.Match(key) {
				own[key] = value
			}
		}
	}
	return Decision{Action: Restore, Labels: own, Marker: marker, Reason: "the node is the machine that its restricted labels were saved from", Again: true}
}

// putBackOn returns the record after withheld labels were put back onto a Node. They are saved with
// its next state, as any change of it.
func putBackOn(r record.Record, left Node) record.Record {
	r.Withheld = slices.Clone(r.Withheld)
	for i, w := range r.Withheld {
		if w.Marker != "" && w.Marker == left.Marker && w.PutBack.IsZero() {
			r.Withheld[i].PutBack = left.Revision
		}
	}
	return r
}

// withheldOn returns the withheld labels of a record after a restore onto a Node: those that it has
// not, and whether they wait for it.
func withheldOn(sets []record.Withheld, n Node) []record.Withheld {
	var next []record.Withheld
	for _, w := range sets {
		if w = without(w, n.Labels); len(w.Labels) == 0 {
			continue
		}
		w.WaitingFor, w.Marker, w.PutBack = "", "", revision.Revision{}
		if !w.Identity.IsZero() && judge(w.Identity, &n) == Waiting {
			w.WaitingFor = n.UID
		}
		next = append(next, w)
	}
	return next
}

// withheldAfter returns the withheld labels of a record after a state of an incarnation was saved.
// Those of which the state has the key are gone: it is newer. So are those that the incarnation had
// by then, and those that were saved from it.
func withheldAfter(t txn.Transaction, r record.Record) []record.Withheld {
	follows := isSourceOrRestored(r, t.UID)
	var next []record.Withheld
	for _, w := range r.Withheld {
		hadBack := follows && w.Marker != "" && (t.Marker == w.Marker || !w.PutBack.IsZero() && !w.PutBack.After(t.Revision))
		if w = without(w, t.Labels); len(w.Labels) == 0 || hadBack || w.Source == t.UID {
			continue
		}
		if !follows || t.Type == txn.Deleted {
			w.WaitingFor, w.Marker, w.PutBack = "", "", revision.Revision{}
		}
		next = append(next, w)
	}
	return next
}

// without returns a set without the labels of which somebody else has set the key.
func without(w record.Withheld, set map[string]string) record.Withheld {
	left := map[string]string{}
	for key, value := range w.Labels {
		if _, isSet := set[key]; !isSet {
			left[key] = value
		}
	}
	w.Labels = left
	return w
}
