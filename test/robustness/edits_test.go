package robustness

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// endedWithout returns the incarnations that ended after an owner and before the next one, without
// their labels, oldest first; a nil next one is yet to come.
func (n *node) endedWithout(owner, next *incarnation) []*incarnation {
	var ended []*incarnation
	for _, i := range n.incarnations {
		began := i.states[0].revision
		if i.deletedAt != 0 && i != owner && began > owner.states[0].revision && (next == nil || began < next.states[0].revision) && i.ownedAt == 0 {
			ended = append(ended, i)
		}
	}
	slices.SortFunc(ended, func(a, b *incarnation) int { return int(a.deletedAt) - int(b.deletedAt) })
	return ended
}

// mustEdit reports whether the edit of a key must be saved: the end of the incarnation was recorded
// with it by a revision, and not after that of a later one.
func (i *incarnation) mustEdit(key string, by uint64, later []*incarnation) bool {
	isLate := slices.ContainsFunc(later, func(other *incarnation) bool { return other.editedAt != 0 && other.editedAt < i.editedAt })
	return i.edited.Has(key) && i.editedAt < by && !isLate
}

// mayEdit reports whether a key was changed on an incarnation.
func (i *incarnation) mayEdit(key string) bool {
	return slices.ContainsFunc(i.states, func(s state) bool { return !isSame(key, s.labels, i.states[0].labels) })
}

func isSame(key string, a, b labelSet) bool {
	one, isInA := a[key]
	other, isInB := b[key]
	return isInA == isInB && one == other
}

// isWithEdits reports whether saved labels are those of the owner with the edits of the incarnations
// that ended since. Those that were recorded by a revision must be among them.
func isWithEdits(saved, own labelSet, ended []*incarnation, by uint64) bool {
	all := maps.Clone(saved)
	maps.Copy(all, own)
	for _, i := range ended {
		maps.Copy(all, i.last().labels)
	}
	for key := range all {
		from := []labelSet{own}
		for at, i := range ended {
			switch {
			case i.mustEdit(key, by, ended[at+1:]):
				from = []labelSet{i.last().labels}
			case i.mayEdit(key):
				from = append(from, i.last().labels)
			}
		}
		if !slices.ContainsFunc(from, func(one labelSet) bool { return isSame(key, saved, one) }) {
			return false
		}
	}
	return true
}

// savesEdits reports whether a record has labels of its source, with the edits of incarnations that
// ended since without their labels. Its revision is the end of the last of them.
func (n *node) savesEdits(r *record.Record) bool {
	source := n.incarnations[r.Source]
	if source == nil {
		return false
	}
	ended := n.endedWithout(source, nil)
	last := slices.IndexFunc(ended, func(i *incarnation) bool { return i.deletedAt == number(r.Revision.String()) })
	return last >= 0 && slices.ContainsFunc(source.states, func(s state) bool { return isWithEdits(r.Labels, s.labels, ended[:last+1], 0) })
}

// completesEdits reports whether a record gets edits of an end that it has already: those that only the
// watcher that recorded the end has seen, after a processor stored it.
func (n *node) completesEdits(before, after record.Record) bool {
	isSameEnd := after.Revision == before.Revision && before.Restored.UID == "" || after.Revision == before.Restored.Revision
	return isSameEnd && after.Source == cmp.Or(before.Restored.UID, before.Source) && after.Restored.UID == "" && n.savesEdits(&after)
}

// notesEdits reports whether a note of an incarnation is the end of a later one that was edited, and
// gone without its labels, but that changed nothing in the record.
func (n *node) notesEdits(of *incarnation, at revision.Revision) bool {
	return slices.ContainsFunc(n.endedWithout(of, nil), func(i *incarnation) bool { return i.deletedAt == number(at.String()) })
}

// editsAreStored reports whether the edits of an incarnation that ended without its labels are in the
// record, or too old for it.
func editsAreStored(n *node, t txn.Transaction) bool {
	at := number(t.Revision.String())
	return t.Type != txn.Deleted || number(n.record.Revision.String()) >= at || number(n.record.Restored.Revision.String()) >= at ||
		t.Edited.Where(func(key string) bool { return !isSame(key, n.record.Labels, t.Labels) }) == ""
}

// edited continues returned: u2 is edited, and gone before its restore. It returns the end, and its
// revision.
func edited() (s *story, deleted txn.Transaction, at uint64) {
	s, _ = returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.node("u2", labelSet{"b": "2"}, "")
	s.node("u2", labelSet{"b": "2", "c": "3"}, "")
	s.delete("u2", labelSet{"b": "2", "c": "3"})
	deleted = s.transaction(txn.Deleted, "u2", s.revision(), labelSet{"b": "2", "c": "3"}, "")
	deleted.Edited = labels.Keys("b,c")
	s.store(deleted)
	s.remove(added)
	return s, deleted, s.revision() - 2
}

// editedAndGone continues edited: the record gets the given labels, one after the other, and u3
// returns. Without labels, nothing is saved.
func editedAndGone(given ...labelSet) *story {
	s, deleted, at := edited()
	saved := txn.Transaction{}
	for _, own := range given {
		saved = s.transaction(txn.Deleted, "u1", at, own, "")
		s.save(saved)
	}
	s.remove(deleted)
	if len(given) == 0 {
		return s
	}
	s.node("u3", labelSet{}, "")
	again := s.transaction(txn.Added, "u3", s.revision(), labelSet{}, "")
	s.store(again)
	s.overwrite("u3", saved.Labels, saved.Revision.String())
	s.note(saved, "u3", s.revision())
	s.remove(again)
	return s
}

// admittedBetween continues edited: one process has stored a part of the edits, and the webhook puts
// labels onto u3 before the rest follows.
func admittedBetween(part, given, rest labelSet) *story {
	s, deleted, at := edited()
	saved := s.transaction(txn.Deleted, "u1", at, part, "")
	s.save(saved)
	s.admitted("u3", labelSet{}, given, saved.Revision.String(), false)
	s.save(s.transaction(txn.Deleted, "u1", at, rest, ""))
	s.remove(deleted)
	s.save(s.transaction(txn.Added, "u3", s.revision()-2, given, saved.Revision.String()))
	return s
}

func TestEditsOfANodeThatIsGoneBeforeItsRestore(t *testing.T) {
	part, all, wrong := labelSet{"a": "1", "b": "2"}, labelSet{"a": "1", "b": "2", "c": "3"}, labelSet{"a": "2", "b": "2", "c": "3"}
	assert.Empty(t, brokenBy(editedAndGone(all)))
	assert.Empty(t, brokenBy(editedAndGone(part, all)), "a processor knew one")
	assert.ElementsMatch(t, []error{errBrokeP1, errBrokeP5}, brokenBy(editedAndGone(part)), "one is lost")
	assert.Equal(t, []error{errBrokeP1Removal}, brokenBy(editedAndGone()), "all are lost")
	assert.ElementsMatch(t, []error{errBrokeP2Truth, errBrokeP6, errBrokeP1}, brokenBy(editedAndGone(wrong)), "another is changed")
	assert.Contains(t, brokenBy(editedAndGone(part, wrong)), errBrokeP6, "another is changed afterwards")
	assert.Empty(t, brokenBy(admittedBetween(part, part, all)), "the webhook did not have the rest yet")
	assert.Empty(t, brokenBy(admittedBetween(part, all, all)), "it had")
	assert.Equal(t, []error{errBrokeP1}, brokenBy(admittedBetween(part, wrong, all)), "it had other labels")
}
