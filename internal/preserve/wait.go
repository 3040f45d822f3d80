package preserve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// decideWithheld decides about an Added transaction of an incarnation that already has its labels:
// it may still get withheld labels. A Node that is no longer selected gets none, and its withheld
// labels keep waiting.
func decideWithheld(r record.Record, n *nodeview.Node, p labels.Policy) Decision {
	if n.Unselected {
		return nothing("this incarnation has its labels and is not selected")
	}
	next := r
	if n.IsWhole && r.Identity.UID != n.UID {
		identify(&next, n.UID, &r, n, p.MachineBound)
	}
	var held []Held
	next.Withheld, held = recheckWithheld(r.Withheld, n, p)
	if !next.Equal(r) {
		d := save(next, "identified the machine of the node")
		d.Again, d.Held = true, held
		return d
	}
	if marker := decidedMarker(r); marker != "" {
		return restoreWithheld(n, r, marker, p)
	}
	if r.WaitsFor(n.UID) {
		return nothing("labels of a machine wait until the node reports its identity")
	}
	return nothing("this incarnation has its labels")
}

// Recheck returns a transaction that stands for a waiting incarnation, if a record has labels that
// wait. Deciding it checks whether the Node has reported its identity by now.
func Recheck(r record.Record) (t txn.Transaction, waits bool) {
	for _, w := range r.Withheld {
		if uid := w.State.Awaits(); uid != "" {
			return txn.Transaction{Type: txn.Added, Node: r.Node, UID: uid, Revision: r.Revision}, true
		}
	}
	return txn.Transaction{}, false
}

// waitedFor returns a record in which no labels wait for an incarnation. Those that were decided
// may have been restored.
func waitedFor(r record.Record, uid types.UID) record.Record {
	r.Withheld = slices.Clone(r.Withheld)
	for i := range r.Withheld {
		if s := &r.Withheld[i].State; s.WaitsFor(uid) {
			*s = record.Unconfirmed(uid, s.Marker()) // kept if there is no marker
		}
	}
	return r
}

// recheckWithheld updates the withheld labels for a Node. It also returns the labels that have
// stopped waiting without being restored.
func recheckWithheld(sets []record.Withheld, n *nodeview.Node, p labels.Policy) (next []record.Withheld, held []Held) {
	for _, w := range ByMode(sets, p) {
		if w.IsLeft() && w.Source != n.UID {
			continue
		}
		isDropped := ModeOf(w, p) == labels.Drop
		switch {
		case (w.State.IsRestored() || w.State.IsRefusedFor(n.UID)) && !isDropped:
			next = append(next, w)
			continue
		case w.State.IsDecided() && n.Marker == w.State.Marker():
			w.State = record.RestoredBy(n.Marker, n.Revision)
			next = append(next, w)
			continue
		case w.State.IsDecidedFor(n.UID) && !isDropped && !isAnother(w, n, p):
			next = append(next, w) // another processor may be about to restore it
			continue
		}
		wasWaiting := w.State.WaitsFor(n.UID)
		w.State = record.Kept
		why := checkWithheld(w, n, p)
		switch why {
		case granted:
			// Keep waiting until the restore is done: if only this record is stored, the labels
			// must be rechecked.
			w.State = record.DecidedFor(n.UID, n.Revision.String())
			if labels.KeysOf(maps.Keys(w.Labels)).Missing(n.Labels) == "" {
				w.State = record.RestoredBy(n.Revision.String(), n.Revision) // all are set already
			}
		case Waiting:
			w.State = record.WaitingFor(n.UID)
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

// isAnother reports whether a Node marked for a restore turned out to be another machine. Either it
// has reported its identity since, and then the pending write fails, or the marking processor
// restores onto any machine. A Node that was read before the decision proves nothing.
func isAnother(w record.Withheld, n *nodeview.Node, p labels.Policy) bool {
	return n.IsWhole && !revision.Of(w.State.Marker()).After(n.Revision) && checkWithheld(w, n, p) == OtherMachine
}

// restoreWithheld returns the decision to add the withheld labels with a marker to a Node that has
// its other labels. Keys that have been set in the meantime stay.
func restoreWithheld(n *nodeview.Node, r record.Record, marker string, p labels.Policy) Decision {
	own := maps.Clone(n.Labels)
	for _, w := range r.Withheld {
		if !w.State.IsDecided() || w.State.Marker() != marker {
			continue
		}
		for key, value := range w.Labels {
			if _, isSet := own[key]; !isSet && !p.Ignored.Match(key) {
				own[key] = value
			}
		}
	}
	return Decision{Action: Restore, Labels: own, Marker: marker, Reason: "the node is the machine that its withheld labels were saved from", Again: true}
}

// notedWithheld returns the record after withheld labels were restored onto a Node, even if
// admission plugins changed the labels or the marker. Such changes are saved with the Node's next
// state, like any other change.
func notedWithheld(r record.Record, left nodeview.Node) record.Record {
	r.Withheld = slices.Clone(r.Withheld)
	marker := decidedMarker(r)
	for i, w := range r.Withheld {
		if w.State.IsDecided() && w.State.Marker() == marker {
			r.Withheld[i].State = record.RestoredBy(marker, left.Revision)
		}
	}
	return r
}

// decidedMarker returns the marker of the first labels that are marked for a restore, or "" if
// there are none.
func decidedMarker(r record.Record) string {
	for _, w := range r.Withheld {
		if w.State.IsDecided() {
			return w.State.Marker()
		}
	}
	return ""
}
