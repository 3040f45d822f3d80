package robustness

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// story is a handwritten history of one node. Its writes have the revisions 1, 2, and so on.
type story struct{ events []event }

const storyNode = "n"

func (s *story) revision() uint64 { return uint64(len(s.events)) }

func (s *story) add(e event) {
	e.name, e.revision = storyNode, s.revision()+1
	s.events = append(s.events, e)
}

// node writes the Node; the first write of a UID creates it.
func (s *story) node(uid types.UID, own labelSet, marker string) {
	s.add(event{node: &nodeWrite{uid: uid, labels: own, marker: marker}})
}

// admitted creates the Node with labels that the webhook has restored.
func (s *story) admitted(uid types.UID, requested, given labelSet, marker string, isGated bool) {
	s.add(event{node: &nodeWrite{uid: uid, labels: given, marker: marker, requested: requested, isGated: isGated}})
}

// ending writes a Node that is being deleted.
func (s *story) ending(uid types.UID, own labelSet) {
	s.add(event{node: &nodeWrite{uid: uid, labels: own, isEnding: true}})
}

// overwrite writes the Node as a processor does.
func (s *story) overwrite(uid types.UID, own labelSet, marker string) {
	s.add(event{node: &nodeWrite{uid: uid, labels: own, marker: marker, isService: true}})
}

func (s *story) delete(uid types.UID, own labelSet) {
	s.add(event{node: &nodeWrite{uid: uid, labels: own, isDeleted: true}})
}

func (s *story) transaction(typ txn.Type, uid types.UID, rv uint64, own labelSet, marker string) txn.Transaction {
	return txn.Transaction{
		Type: typ, Node: storyNode, UID: uid, Revision: revision.Of(strconv.FormatUint(rv, 10)), Labels: own, Marker: marker,
		FoundsRecord: typ == txn.Added,
	}
}

func (s *story) store(t txn.Transaction) {
	s.add(event{transaction: &transactionWrite{Transaction: t}})
}

func (s *story) remove(t txn.Transaction) {
	s.add(event{transaction: &transactionWrite{Transaction: t, isRemoved: true}})
}

// save writes the record with the labels of a transaction.
func (s *story) save(t txn.Transaction) {
	s.add(event{record: &recordWrite{now: &record.Record{Node: storyNode, Labels: t.Labels, Revision: t.Revision, Source: t.UID}}})
}

// note writes the record with the labels of a transaction and the note of a restore.
func (s *story) note(t txn.Transaction, onto types.UID, at uint64) {
	s.add(event{record: &recordWrite{now: &record.Record{
		Node: storyNode, Labels: t.Labels, Revision: t.Revision, Source: t.UID,
		Restored: record.Restoration{UID: onto, Revision: revision.Of(strconv.FormatUint(at, 10))},
	}}})
}

// carryOut stores a transaction, saves its labels and removes it.
func (s *story) carryOut(t txn.Transaction) {
	s.store(t)
	s.save(t)
	s.remove(t)
}

// first is the life of the first incarnation, u1, up to its first record.
func first() (*story, txn.Transaction) {
	s := &story{}
	s.node("u1", labelSet{"a": "1"}, "")
	added := s.transaction(txn.Added, "u1", 1, labelSet{"a": "1"}, "")
	s.carryOut(added)
	return s, added
}

// returned continues first: u1 is gone, the returned transaction has saved its labels, and u2
// exists without labels.
func returned() (*story, txn.Transaction) {
	s, _ := first()
	s.delete("u1", labelSet{"a": "1"})
	deleted := s.transaction(txn.Deleted, "u1", s.revision(), labelSet{"a": "1"}, "")
	s.carryOut(deleted)
	s.node("u2", labelSet{}, "")
	return s, deleted
}

// restored continues returned: u2 has its labels, as it must. It returns the transaction that they
// came from and the revision of the restore.
func restored() (*story, txn.Transaction, uint64) {
	s, deleted := returned()
	added := s.transaction(txn.Added, "u2", s.revision(), labelSet{}, "")
	s.store(added)
	s.overwrite("u2", labelSet{"a": "1"}, deleted.Revision.String())
	at := s.revision()
	s.note(deleted, "u2", at)
	s.remove(added)
	return s, deleted, at
}
