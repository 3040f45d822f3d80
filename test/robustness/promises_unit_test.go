package robustness

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/txn"
)

// brokenBy replays a story and returns the promises that it breaks.
func brokenBy(s *story, blind ...interval) []error {
	r := newReplay(&ghost{policy: defaultPolicy(), blind: blind})
	for _, e := range s.events {
		r.next(e)
	}
	r.end()
	return slices.Collect(maps.Keys(r.broken))
}

func TestGoodStoriesBreakNoPromise(t *testing.T) {
	s, _, _ := restored()
	assert.Empty(t, brokenBy(s))
	s, _, at := restored()
	s.store(s.transaction(txn.Updated, "u2", at, labelSet{"a": "1"}, "7")) // the restore itself, recorded by a watcher
	s.remove(s.transaction(txn.Updated, "u2", at, labelSet{"a": "1"}, "7"))
	assert.Empty(t, brokenBy(s))
	assert.Empty(t, brokenBy(admitted(labelSet{"a": "1"}, false)))
	assert.Empty(t, brokenBy(admittedEarly()))
	assert.Empty(t, brokenBy(editedDuringRestore()))
	assert.Empty(t, brokenBy(overtook("")), "changes that are saved together")
	assert.Empty(t, brokenBy(overtook("9")), "a change that is superseded, though its marker is another one")
}

func TestEveryPromiseIsBrokenByAStoryOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		story *story
		want  error
	}{
		"the last change is lost":                                        {lostChange(), errBrokeP1},
		"other labels are restored than were saved":                      {restoredWrongly(), errBrokeP1},
		"an edit before a restore is overwritten":                        {editedBefore(labelSet{"a": "1"}), errBrokeP1},
		"another incarnation founds the record":                          {foundedLate(), errBrokeP1},
		"a change is never saved":                                        {unsavedChange(), errBrokeP1Record},
		"a change is removed unsaved":                                    {removedUnsaved(), errBrokeP1Removal},
		"an older change is saved over a newer":                          {savedOlder(), errBrokeP2Age},
		"a restore overtakes a change":                                   {restoreOvertook(), errBrokeP2Order},
		"labels are saved that never were":                               {savedFiction(), errBrokeP2Truth},
		"a node is restored twice":                                       {restoredTwice(), errBrokeP3},
		"a processor takes an edit back":                                 {tookBack(), errBrokeP3},
		"a restore is dropped":                                           {droppedRestore(), errBrokeP4},
		"a node never gets its labels":                                   {owedForEver(), errBrokeP4},
		"a transaction is left":                                          {leftInQueue(), errBrokeP4Queue},
		"the webhook puts other labels onto a node than were saved":      {admittedWrongly(), errBrokeP1},
		"a node that has its labels is left behind the startup taint":    {leftGated(), errBrokeP4},
		"a restore is not noted":                                         {notNoted(), errBrokeP5},
		"labels are saved of what never had its own":                     {savedUnowned(), errBrokeP6},
		"labels of an incarnation are saved after the next was restored": {savedLate(), errBrokeP6},
		"a record is removed":                                            {removedRecord(), errBrokeP6},
		"a note is written over what was saved since":                    {notedLate(), errBrokeP2Age},
		"a note of what was not restored from the record":                {notedFiction(), errBrokeP6},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, []error{tc.want}, brokenBy(tc.story)) })
	}
}

func TestUnseenChangesAreExcused(t *testing.T) {
	edit := uint64(5) // in lostChange
	assert.Empty(t, brokenBy(lostChange(), interval{edit, edit + 1}))
	assert.Equal(t, []error{errBrokeP1}, brokenBy(lostChange(), interval{edit + 1, edit + 1}), "the edit was seen")
	assert.Empty(t, brokenBy(lostChange(), interval{0, 100}))
	assert.Equal(t, []error{errBrokeP1}, brokenBy(lostRecorded(), interval{0, 100}), "what was recorded is not excused")
	assert.Empty(t, brokenBy(foundedLate(), interval{0, 100}))
}

// The state of a deleted node that a processor read is stored, and a later edit may be lost.
func TestEditInTheMomentInWhichANodeIsLetGoIsExcused(t *testing.T) {
	edited := func(lateEdit bool) *story {
		s, added := first()
		if lateEdit {
			s.ending("u1", labelSet{"a": "1"})
			s.ending("u1", labelSet{"a": "2"})
		} else {
			s.node("u1", labelSet{"a": "2"}, "")
			s.ending("u1", labelSet{"a": "2"})
		}
		s.delete("u1", labelSet{"a": "2"})
		s.node("u2", labelSet{}, "")
		s.overwrite("u2", labelSet{"a": "1"}, added.Revision.String())
		return s
	}
	broken := func(g *ghost, s *story) []error {
		r := newReplay(g)
		for _, e := range s.events {
			r.next(e)
		}
		return slices.Collect(maps.Keys(r.broken))
	}
	protected := &ghost{policy: defaultPolicy(), protectorsEnd: true}
	assert.Empty(t, broken(protected, edited(true)))
	assert.Equal(t, []error{errBrokeP1}, broken(protected, edited(false)), "an edit before the deletion")
	assert.Equal(t, []error{errBrokeP1}, broken(&ghost{policy: defaultPolicy()}, edited(true)), "nodes are not protected")
}

// lostChange: u1 is edited and deleted, and u2 gets the labels from before the edit.
func lostChange() *story {
	s, added := first()
	s.node("u1", labelSet{"a": "2"}, "")
	s.delete("u1", labelSet{"a": "2"})
	s.node("u2", labelSet{}, "")
	again := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(again)
	s.overwrite("u2", labelSet{"a": "1"}, added.Revision.String())
	s.note(added, "u2", s.revision())
	s.remove(again)
	return s
}

// lostRecorded: like lostChange, but the edit was recorded.
func lostRecorded() *story {
	s, added := first()
	s.node("u1", labelSet{"a": "2"}, "")
	s.carryOut(s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "2"}, ""))
	s.delete("u1", labelSet{"a": "2"})
	s.node("u2", labelSet{}, "")
	again := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(again)
	s.overwrite("u2", labelSet{"a": "1"}, added.Revision.String())
	s.delete("u2", labelSet{"a": "1"})
	s.remove(again)
	return s
}

// editedDuringRestore: the restore was planned before the edit of a label that it does not replace.
func editedDuringRestore() *story {
	s, deleted := returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.node("u2", labelSet{"b": "2"}, "")
	s.overwrite("u2", labelSet{"a": "1", "b": "2"}, deleted.Revision.String())
	s.save(s.transaction(txn.Updated, "u2", s.revision(), labelSet{"a": "1", "b": "2"}, ""))
	s.remove(added)
	return s
}

// editedBefore: u2 is edited after its addition was recorded, and then restored.
func editedBefore(given labelSet) *story {
	s, deleted := returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.node("u2", labelSet{"a": "2"}, "")
	s.overwrite("u2", given, deleted.Revision.String())
	s.save(s.transaction(txn.Updated, "u2", s.revision(), given, ""))
	s.remove(added)
	return s
}

func TestEditBeforeARestoreStays(t *testing.T) {
	assert.Empty(t, brokenBy(editedBefore(labelSet{"a": "2"})))
}

// TestEditThatWasSetBackBeforeARestoreStays: users set a on u2, and then remove it and set b.
func TestEditThatWasSetBackBeforeARestoreStays(t *testing.T) {
	for isShown, want := range map[bool]int{true: 0, false: 1} {
		s, both := &story{}, labelSet{"a": "1", "b": "1"}
		s.node("u1", both, "")
		s.carryOut(s.transaction(txn.Added, "u1", s.revision(), both, ""))
		s.delete("u1", both)
		deleted := s.transaction(txn.Deleted, "u1", s.revision(), both, "")
		s.carryOut(deleted)
		s.node("u2", labelSet{}, "")
		queue := []txn.Transaction{s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")}
		s.node("u2", labelSet{"a": "2"}, "")
		if isShown {
			queue = append(queue, s.transaction(txn.Updated, "u2", s.revision(), labelSet{"a": "2"}, ""))
		}
		for _, t := range queue {
			s.store(t)
		}
		left := labelSet{"b": "2"}
		s.node("u2", left, "")
		s.overwrite("u2", left, deleted.Revision.String())
		s.save(s.transaction(txn.Updated, "u2", s.revision(), left, ""))
		for _, t := range queue {
			s.remove(t)
		}
		assert.Len(t, brokenBy(s), want, "the queue shows that a was set: %t", isShown)
	}
}

func restoredWrongly() *story {
	s, deleted := returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.overwrite("u2", labelSet{"a": "1", "b": "2"}, deleted.Revision.String())
	s.save(s.transaction(txn.Updated, "u2", s.revision(), labelSet{"a": "1", "b": "2"}, ""))
	s.remove(added)
	return s
}

// admitted: u1 is gone, and the webhook restores labels from the record onto u2, which has a label
// of its own.
func admitted(given labelSet, isGated bool) *story {
	s, _ := first()
	s.delete("u1", labelSet{"a": "1"})
	deleted := s.transaction(txn.Deleted, "u1", s.revision(), labelSet{"a": "1"}, "")
	s.carryOut(deleted)
	s.admitted("u2", labelSet{"b": "2"}, given, deleted.Revision.String(), isGated)
	s.save(s.transaction(txn.Added, "u2", s.revision(), given, deleted.Revision.String()))
	return s
}

func admittedWrongly() *story { return admitted(labelSet{"a": "1", "b": "2"}, false) }

func leftGated() *story { return admitted(labelSet{"a": "1"}, true) }

// admittedEarly: the webhook uses the record from before the last change of u1, so u2 does not own
// its labels before the restore.
func admittedEarly() *story {
	s, added := first()
	s.node("u1", labelSet{"a": "2"}, "")
	updated := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "2"}, "")
	s.store(updated)
	s.delete("u1", labelSet{"a": "2"})
	s.admitted("u2", labelSet{}, labelSet{"a": "1"}, added.Revision.String(), false)
	again := s.transaction(txn.Added, "u2", s.revision(), labelSet{"a": "1"}, added.Revision.String())
	s.store(again)
	s.save(updated)
	s.remove(updated)
	s.overwrite("u2", labelSet{"a": "2"}, updated.Revision.String())
	s.note(updated, "u2", s.revision())
	s.remove(again)
	return s
}

func foundedLate() *story {
	s := &story{}
	s.node("u1", labelSet{"a": "1"}, "")
	s.delete("u1", labelSet{"a": "1"})
	s.node("u2", labelSet{}, "")
	s.carryOut(s.transaction(txn.Added, "u2", s.revision(), labelSet{}, ""))
	return s
}

func unsavedChange() *story {
	s, _ := first()
	s.node("u1", labelSet{"a": "2"}, "")
	return s
}

func removedUnsaved() *story {
	s, _ := first()
	s.node("u1", labelSet{"a": "2"}, "")
	updated := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "2"}, "")
	s.store(updated)
	s.remove(updated)
	s.save(updated)
	return s
}

func savedOlder() *story {
	s, added := first()
	s.node("u1", labelSet{"a": "2"}, "")
	updated := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "2"}, "")
	s.carryOut(updated)
	s.save(added)
	s.save(updated)
	return s
}

// overtook: a change is saved before an earlier one. With the same marker the two would be saved
// together.
func overtook(olderMarker string) *story {
	s, _ := first()
	s.node("u1", labelSet{"a": "2"}, "")
	older := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "2"}, olderMarker)
	s.node("u1", labelSet{"a": "3"}, "")
	newer := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "3"}, "")
	s.store(older)
	s.carryOut(newer)
	s.remove(older)
	return s
}

func restoreOvertook() *story {
	s, added := first()
	s.node("u1", labelSet{"a": "2"}, "")
	s.node("u1", labelSet{"a": "1"}, "")
	updated := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "1"}, "")
	s.store(updated)
	s.delete("u1", labelSet{"a": "1"})
	s.node("u2", labelSet{}, "")
	again := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(again)
	s.overwrite("u2", labelSet{"a": "1"}, added.Revision.String()) // these labels are correct
	s.note(added, "u2", s.revision())
	s.remove(again)
	s.node("u2", labelSet{"a": "2"}, added.Revision.String())
	s.carryOut(s.transaction(txn.Updated, "u2", s.revision(), labelSet{"a": "2"}, added.Revision.String()))
	s.remove(updated)
	return s
}

func savedFiction() *story {
	s, _ := first()
	s.node("u1", labelSet{"a": "2"}, "")
	s.save(s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "never"}, ""))
	s.node("u1", labelSet{"a": "3"}, "")
	s.carryOut(s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "3"}, ""))
	return s
}

func restoredTwice() *story {
	s, deleted, _ := restored()
	s.node("u2", labelSet{"a": "2"}, "")
	s.overwrite("u2", labelSet{"a": "1"}, deleted.Revision.String())
	return s
}

func tookBack() *story {
	s, _ := first()
	s.node("u1", labelSet{"a": "2"}, "")
	s.overwrite("u1", labelSet{"a": "1"}, "")
	return s
}

func droppedRestore() *story {
	s, _ := returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.remove(added)
	s.delete("u2", labelSet{})
	return s
}

func owedForEver() *story {
	s, _ := returned()
	return s
}

func leftInQueue() *story {
	s, added := first()
	s.store(added)
	return s
}

func notNoted() *story {
	s, deleted := returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.overwrite("u2", labelSet{"a": "1"}, deleted.Revision.String())
	s.remove(added)
	return s
}

func savedUnowned() *story {
	s, _ := returned()
	at := s.revision()
	s.delete("u2", labelSet{})
	s.save(s.transaction(txn.Updated, "u2", at, labelSet{}, ""))
	return s
}

func savedLate() *story {
	s, added := first()
	s.node("u1", labelSet{"a": "1"}, "")
	heartbeat := s.transaction(txn.Updated, "u1", s.revision(), labelSet{"a": "1"}, "")
	s.delete("u1", labelSet{"a": "1"})
	s.node("u2", labelSet{}, "")
	again := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(again)
	s.overwrite("u2", labelSet{"a": "1"}, added.Revision.String())
	s.note(added, "u2", s.revision())
	s.remove(again)
	s.save(heartbeat)
	return s
}

func removedRecord() *story {
	s, added := first()
	s.add(event{record: &recordWrite{}})
	s.save(added)
	return s
}

func notedLate() *story {
	s, deleted, at := restored()
	s.delete("u2", labelSet{"a": "1"})
	s.node("u3", labelSet{}, "")
	added := s.transaction(txn.Added, "u3", s.revision(), labelSet{}, "")
	s.store(added)
	s.overwrite("u3", labelSet{"a": "1"}, deleted.Revision.String())
	s.note(deleted, "u3", s.revision())
	s.remove(added)
	s.note(deleted, "u2", at)
	return s
}

func notedFiction() *story {
	s, deleted := returned()
	s.delete("u2", labelSet{})
	s.note(deleted, "u2", s.revision()-1)
	return s
}
