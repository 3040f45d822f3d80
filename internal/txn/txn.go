package txn

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/revision"
)

// Type is the kind of event that a transaction records.
type Type string

const (
	// Added records that an incarnation appeared.
	Added Type = "added"
	// Updated records that the labels of an incarnation changed.
	Updated Type = "updated"
	// Deleted records the end of an incarnation, with the labels it had then.
	Deleted Type = "deleted"
)

// Types returns every type, in the order of a node's life.
func Types() []Type { return []Type{Added, Updated, Deleted} }

// Transaction is one recorded event of one incarnation of a node.
type Transaction struct {
	Type Type
	// Node is the node's name.
	Node string
	// UID is the metadata.uid of the Node, which identifies the incarnation.
	UID types.UID
	// Revision is the Node's revision in the recorded event, or the last one seen for a delete that
	// the watcher missed.
	Revision revision.Revision
	// Labels are the node's labels at that resourceVersion, without the marker.
	Labels map[string]string
	// Machine are the keys of labels that only the machine's agents had set then, Unclear the keys
	// whose setter is unknown. Keys in both were the machine's in an earlier state that the
	// transaction supersedes.
	Machine, Unclear labels.Keys
	// Withdrawn are the keys of labels that have disappeared since the previous state, and that
	// agents may have removed themselves, see [nodeview.Withdrawn].
	Withdrawn labels.Keys
	// Overruled are the keys that users are known to have overruled since the previous state:
	// labels of the machine that a user removed, including keys from states that this transaction
	// supersedes.
	Overruled labels.Keys
	// Edited are the keys that users have set, changed or removed since the Node was created, in a
	// Deleted transaction whose final state is known. If the incarnation never got its labels, these
	// keys are saved, see package preserve. Other transactions have, in memory only, what later states
	// in the queue show.
	Edited labels.Keys
	// Owners are the field managers of the labels that are not the machine's.
	Owners fieldmanagers.Owners
	// Marker is the value of the marker at that resourceVersion, or "".
	Marker string
	// Restored reports that a restore onto this incarnation had set the marker. Otherwise the marker
	// may have been copied from another Node.
	Restored bool
	// ObservedAt is when the watcher saw the event, from which the batch period counts.
	ObservedAt time.Time
	// FoundsRecord makes an Added transaction of a node without a record create one. Watchers set
	// it if they record updates; otherwise a record created that early would only restore outdated
	// labels.
	FoundsRecord bool
	// AtOnce marks an urgent transaction: it is applied without delay, like an Added one. See also
	// [Transaction.IsRequest].
	AtOnce bool
	// ByProcessor reports that the processor that applies the transaction has read the Node itself,
	// with its own flags, so that a missing key proves a removal. It is not stored.
	ByProcessor bool
	// Superseded are the pending transactions of the incarnation, oldest first, in an end that a
	// processor read itself. Package preserve derives States: those that the record lacks, followed
	// by the end. Neither is stored.
	Superseded, States []Transaction
	// Latest is the latest state of the incarnation in the queue if it is another one, see package
	// preserve. It is not stored.
	Latest *Transaction
	// Ahead reports that the revision is higher than that of all Nodes, so that the transaction is of
	// an earlier history, see package preserve. It is not stored.
	Ahead bool
}

// RestsOnQueue reports whether a restore by the transaction depends on other states in the queue.
func (t Transaction) RestsOnQueue() bool { return t.Edited != "" || t.Latest != nil }

// IsRequest reports whether the transaction is a user's request to restore the labels of a live
// Node, which replaces what users have set on it.
func (t Transaction) IsRequest() bool { return t.Type == Added && t.AtOnce && !t.FoundsRecord }

// EndSeen returns the transaction for the end of a Node that a processor read itself, see
// [Transaction.ByProcessor]. Unless this is the final state, it has no edits: the Node may still
// change.
func EndSeen(n *nodeview.Node, isFinal bool) Transaction {
	t := Of(Deleted, n)
	t.ByProcessor = true
	if !isFinal {
		t.Edited = ""
	}
	return t
}

// Of returns the transaction for an event, given the resulting state of the Node. It shares the
// labels. ObservedAt and FoundsRecord are not set.
func Of(typ Type, n *nodeview.Node) Transaction {
	t := Transaction{
		Type: typ, Node: n.Name, UID: n.UID, Revision: n.Revision, Labels: n.Labels, Marker: n.Marker,
		Restored: n.IsRestored(), Machine: n.Machine, Unclear: n.Unclear, Owners: n.Owners,
	}
	if typ == Deleted {
		t.Edited = n.Edited.Without(labels.Marker).Bounded()
	}
	return t
}

// RestoredFrom returns the revision of the record that was last restored onto the incarnation,
// according to its marker. It is zero if no restore has set the marker, or if the marker is of an
// earlier history: a record is not later than the Node that was restored from it.
func (t Transaction) RestoredFrom() revision.Revision {
	return RestoredFrom(t.Marker, t.Restored, t.Revision)
}

// RestoredFrom is [Transaction.RestoredFrom] for a Node at a revision.
func RestoredFrom(marker string, isRestored bool, at revision.Revision) revision.Revision {
	if from := revision.Of(marker); isRestored && !from.After(at) {
		return from
	}
	return revision.Revision{}
}

// hashLength is the length in characters of a node hash, a SHA-256 in hexadecimal.
const hashLength = 2 * sha256.Size

// NodeHash returns the SHA-256 of a node's name in hexadecimal, which is part of the names of its
// transactions.
func NodeHash(node string) string {
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:])
}

// IsSameEvent reports whether a stored transaction records the same event as another one with its
// name. Two events can share a name: a tombstone has the revision of the last state that was seen,
// for which there may be an update, too; and a restored etcd assigns resourceVersions twice. An add
// that founds a record differs from an add that does not, because it has more effects.
func (t Transaction) IsSameEvent(other Transaction) bool {
	return t.Type == other.Type && t.UID == other.UID && (t.FoundsRecord || !other.FoundsRecord)
}

// Name returns the name of the transaction's ConfigMap.
func (t Transaction) Name() string {
	return NodeHash(t.Node) + "." + t.Revision.String()
}

// SplitName returns the node hash and the revision in the name of a transaction's ConfigMap; ok is
// false for any other name.
func SplitName(name string) (nodeHash string, rev revision.Revision, ok bool) {
	nodeHash, text, found := strings.Cut(name, ".")
	if !found || len(nodeHash) != hashLength || strings.Trim(nodeHash, "0123456789abcdef") != "" {
		return "", revision.Revision{}, false
	}
	rev, err := revision.Parse(text)
	if err != nil {
		return "", revision.Revision{}, false
	}
	return nodeHash, rev, true
}

// Compare orders the transactions of one node: -1 if a comes before b, 0 if both record the same
// revision, 1 if a comes after b.
func Compare(a, b Transaction) int { return a.Revision.Compare(b.Revision) }
