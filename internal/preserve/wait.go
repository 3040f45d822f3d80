package preserve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// decideOwner decides about an Added transaction of an incarnation that already has its labels: it may
// still get withheld labels. A Node that is no longer looked after gets none, and its withheld labels
// keep waiting.
func decideOwner(r record.Record, n *Node, p labels.Policy) Decision {
	if n.Unselected {
		return nothing("this incarnation has its labels, and is not looked after")
	}
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
	if marker := decidedMarker(r); marker != "" {
		return putBackOnto(n, r, marker, p)
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
			r.Withheld[i].WaitingFor, r.Withheld[i].Marker = "", ""
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
		case w.Marker != "" && w.WaitingFor == n.UID && p.Restricted != labels.Drop && !isAnother(w, n, p):
			next = append(next, w) // decided: another processor may be about to do it
			continue
		}
		w.Marker = ""
		wasWaiting := w.WaitingFor == n.UID
		why := judgeWithheld(w, n, p)
		w.WaitingFor = ""
		switch why {
		case putBack:
			// It waits until it is done: if this is stored and nothing else, somebody must look again.
			w.Marker, w.WaitingFor = n.Revision.String(), n.UID
			if labels.KeysOf(maps.Keys(w.Labels)).Missing(n.Labels) == "" {
				w.PutBack, w.WaitingFor = n.Revision, "" // somebody has set them all
			}
		case Waiting:
			w.WaitingFor = n.UID
		case OtherMachine, UnknownMachine, Dropped, NoRoom:
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

// isAnother reports whether a Node, onto which it was decided to put labels back, is another machine:
// it has said so since, and then the write that was decided about fails; or who decided put them back
// onto any machine. A Node that was read before the decision says nothing about it.
func isAnother(w record.Withheld, n *Node, p labels.Policy) bool {
	return n.IdentityRead && !revision.Of(w.Marker).After(n.Revision) && judgeWithheld(w, n, p) == OtherMachine
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

// putBackOn returns the record after withheld labels were put back onto a Node, whatever admission
// plugins have made of the labels and the marker. They are saved with its next state, as any change of
// it.
func putBackOn(r record.Record, left Node) record.Record {
	r.Withheld = slices.Clone(r.Withheld)
	marker := decidedMarker(r)
	for i, w := range r.Withheld {
		if marker != "" && w.Marker == marker && w.PutBack.IsZero() {
			r.Withheld[i].PutBack, r.Withheld[i].WaitingFor = left.Revision, ""
		}
	}
	return r
}

// decidedMarker returns the marker of the first labels that are to be put back, "" if there are none.
func decidedMarker(r record.Record) string {
	for _, w := range r.Withheld {
		if w.Marker != "" && w.PutBack.IsZero() {
			return w.Marker
		}
	}
	return ""
}
