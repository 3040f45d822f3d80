package robustness

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// checkDrop: when a transaction is removed, the same decision about the actual state finds nothing
// to do. Errors of checkRemoval and checkDebt are not repeated.
func (g *ghost) checkDrop(n *node, e event) error {
	t := e.transaction
	if t == nil || !t.isRemoved || !g.isStored(n, t.Name()) {
		return nil
	}
	d := preserve.Decide(t.Transaction, n.record, liveNode(n), g.policy)
	if d.Action == preserve.Nothing {
		return nil
	}
	return fmt.Errorf("%s of incarnation %s at %s was removed before it took effect: %s: %s", t.Type, short(t.UID), t.Revision, d.Action, d.Reason)
}

func liveNode(n *node) *nodeview.Node {
	if n.live == nil {
		return nil
	}
	last := n.live.last()
	return &nodeview.Node{UID: n.live.uid, Revision: revision.Of(strconv.FormatUint(last.revision, 10)), Labels: last.labels, Marker: last.marker, Gated: last.isGated}
}

// checkWrite: each write follows from the state that it replaces. A step back in time is left to
// checkAge.
func (g *ghost) checkWrite(n *node, e event) error {
	if e.record == nil || n.record == nil {
		return nil
	}
	if e.record.now == nil {
		return errors.New("the record was removed, but no replica was allowed to remove it")
	}
	before, after := *n.record, *e.record.now
	if isOlder(before, after) {
		return nil
	}
	if !isNote(n, before, after) && !isLater(n, before, after) && !n.completesEdits(before, after) {
		return fmt.Errorf("version %s of %s replaces version %s of %s, restored onto %q at %s: it does not follow from that",
			after.Revision, short(after.Source), before.Revision, short(before.Source), short(before.Restored.UID), before.Restored.Revision)
	}
	return nil
}

// isNote reports whether a record equals its predecessor, except for the note of a restore from it,
// for a later state of its source with the same labels, or for the end of the state that it has.
func isNote(n *node, before, after record.Record) bool {
	i := n.incarnations[after.Restored.UID]
	if i == nil || before.Revision != after.Revision || before.Source != after.Source || !maps.Equal(before.Labels, after.Labels) {
		return false
	}
	s, ok := i.at(number(after.Restored.Revision.String()))
	if !ok && n.notesEdits(i, after.Restored.Revision) {
		return true
	}
	isOwn := i.uid == before.Source && number(after.Restored.Revision.String()) > number(before.Revision.String())
	isEnd := after.Ended && !before.Ended &&
		i.uid == cmp.Or(before.Restored.UID, before.Source) && after.Restored.Revision == cmp.Or(before.Restored.Revision, before.Revision)
	return ok && (isOwn || isEnd || s.marker == before.Revision.String()) && maps.Equal(s.labels, after.Labels)
}

// isLater reports whether a record has a later state of the incarnation that its predecessor
// follows.
func isLater(n *node, before, after record.Record) bool {
	source := n.incarnations[after.Source]
	if source == nil {
		return false
	}
	s, ok := source.at(number(after.Revision.String()))
	if !ok && n.savesEdits(&after) {
		s, ok = source.last(), true
	}
	isAfterRestore := number(after.Revision.String()) > number(before.Restored.Revision.String())
	switch {
	case !ok:
		return false
	case after.Source == before.Source:
		return isAfterRestore && number(after.Revision.String()) > number(before.Revision.String())
	case after.Source == before.Restored.UID:
		return isAfterRestore
	}
	return s.marker == before.Revision.String() && isAfterRestore
}
