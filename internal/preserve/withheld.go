package preserve

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// withhold moves labels of a record into a set of withheld labels and reports whether there were
// any.
func withhold(next *record.Record, r record.Record, moved map[string]string) bool {
	if len(moved) == 0 {
		return false
	}
	next.Labels = maps.Clone(next.Labels)
	for key := range moved {
		delete(next.Labels, key)
	}
	dropWithheld(moved, r)
	next.Identity = record.Identity{}
	if len(moved) == 0 {
		return true
	}
	next.Withheld = append([]record.Withheld{{Labels: moved, Source: followed(r), Identity: r.Identity.Identity}}, next.Withheld...)
	return true
}

// dropWithheld drops labels whose keys a record withholds already: they are the machine's own,
// beside a refused value of a user, see [newerThan].
func dropWithheld(moved map[string]string, r record.Record) {
	for key := range r.WithheldKeys().All() {
		delete(moved, key)
	}
}

// followed returns the last incarnation that the labels of a record came from.
func followed(r record.Record) types.UID { return cmp.Or(r.Identity.UID, r.Restored.UID, r.Source) }

// heldFrom returns the withheld labels that a Node does not get, and the reasons.
func heldFrom(r record.Record, n *nodeview.Node, p labels.Policy) []Held {
	var held []Held
	for _, w := range ByMode(r.Withheld, p) {
		keys := labels.KeysOf(maps.Keys(w.Labels)).Missing(n.Labels)
		if why := checkWithheld(w, n, p); why != granted && keys != "" && !w.State.IsRefusedFor(n.UID) { // reported when it was refused
			held = append(held, Held{Keys: keys, Why: why})
		}
	}
	return held
}

// ByMode returns sets of withheld labels, each with labels of one mode: a set may have restricted
// labels, to which other flags apply.
func ByMode(sets []record.Withheld, p labels.Policy) []record.Withheld {
	var uniform []record.Withheld
	for _, w := range sets {
		rest := w.Labels
		for _, mode := range []labels.RestrictedMode{labels.SameMachine, labels.Keep, labels.Drop} {
			ofMode := map[string]string{}
			for key, value := range rest {
				if p.ModeOf(key) == mode {
					ofMode[key] = value
				}
			}
			if len(ofMode) > 0 {
				w.Labels = ofMode
				uniform = append(uniform, w)
			}
		}
	}
	return uniform
}

// ModeOf returns the mode of a set of labels that have the same one.
func ModeOf(w record.Withheld, p labels.Policy) labels.RestrictedMode {
	for key := range w.Labels {
		return p.ModeOf(key)
	}
	return labels.Keep
}

// withoutDropped returns the sets that the policy does not drop, and the keys of the others.
func withoutDropped(sets []record.Withheld, p labels.Policy) (kept []record.Withheld, dropped labels.Keys) {
	for _, w := range ByMode(sets, p) {
		if ModeOf(w, p) == labels.Drop {
			dropped = dropped.Union(labels.KeysOf(maps.Keys(w.Labels)))
		} else {
			kept = append(kept, w)
		}
	}
	return kept, dropped
}

// waits reports whether any held labels wait for the Node.
func waits(held []Held) bool {
	return slices.ContainsFunc(held, func(h Held) bool { return h.Why == Waiting })
}

// withheldOn returns the withheld labels of a record after a restore onto a Node: those that it did
// not get and does not have, and whether they wait for it.
func withheldOn(r record.Record, n nodeview.Node) []record.Withheld {
	var next []record.Withheld
	for _, w := range r.Withheld {
		isRestored := w.State.IsDecidedFor(n.UID)
		if w = without(w, newerThan(w, r, sideOfNode(&n))); len(w.Labels) == 0 || isRestored {
			continue
		}
		if w.State.IsRefusedFor(n.UID) {
			next = append(next, w)
			continue
		}
		w.State = record.Kept
		if !w.Identity.IsZero() && checkMachine(w.Identity, &n) == Waiting {
			w.State = record.WaitingFor(n.UID)
		}
		next = append(next, w)
	}
	return next
}

// withheldAfter returns the withheld labels of a record after a state of an incarnation was saved.
// It drops labels whose keys are in that state, which is newer, labels that the incarnation had got
// back by then, and labels that were saved from it.
func withheldAfter(t txn.Transaction, r record.Record) []record.Withheld {
	follows := isSourceOrRestored(r, t.UID)
	var next []record.Withheld
	for _, w := range r.Withheld {
		s := w.State
		hadBack := follows && s.Marker() != "" && (t.Marker == s.Marker() || s.IsRestored() && !s.RestoredAt().After(t.Revision)) ||
			!follows && (s.IsDecidedFor(t.UID) || s.IsUnconfirmedFor(t.UID)) && t.Marker == r.Revision.String()
		if w = without(w, newerThan(w, r, sideOf(t))); len(w.Labels) == 0 || hadBack || w.Source == t.UID {
			continue
		}
		if (!follows || t.Type == txn.Deleted) && !s.IsRefused() {
			w.State = record.Kept
		}
		next = append(next, w)
	}
	return next
}

// newerThan returns the labels of a later state that replace withheld ones of a record. These are
// all, except where a value was refused: the Node may have another one then, which the record keeps
// beside it, and the machine may set its own.
func newerThan(w record.Withheld, r record.Record, later labels.Side) map[string]string {
	if !w.State.IsRefused() {
		return later.Labels
	}
	newer := maps.Clone(later.Labels)
	for key := range w.Labels {
		if beside, isThere := r.Labels[key]; isThere && newer[key] == beside {
			delete(newer, key)
		}
	}
	for key := range later.Machine.Union(later.Unclear).All() {
		if newer[key] != w.Labels[key] {
			delete(newer, key)
		}
	}
	return newer
}

// without drops labels whose keys are set elsewhere.
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
