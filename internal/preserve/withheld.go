package preserve

import (
	"maps"
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

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
	switch {
	case r.Identity.UID != "":
		source = r.Identity.UID
	case r.Restored.UID != "":
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

// withheldOn returns the withheld labels of a record after a restore onto a Node: those that it did not
// get and has not, and whether they wait for it.
func withheldOn(sets []record.Withheld, n Node) []record.Withheld {
	var next []record.Withheld
	for _, w := range sets {
		isPutBack := isDecidedFor(w, n.UID)
		if w = without(w, n.Labels); len(w.Labels) == 0 || isPutBack {
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
		hadBack := follows && w.Marker != "" && (t.Marker == w.Marker || !w.PutBack.IsZero() && !w.PutBack.After(t.Revision)) ||
			!follows && isDecidedFor(w, t.UID) && t.Marker == r.Revision.String()
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
