package txn

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nodekeeper.dev/internal/labels"
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
	// UID is the metadata.uid of the Node: it identifies the incarnation.
	UID types.UID
	// ResourceVersion is that of the Node in the recorded event. For a delete that
	// a watcher missed it is the last one that it saw.
	ResourceVersion string
	// Labels are the node's labels at that resourceVersion, without the marker.
	Labels map[string]string
	// Marker is the value of the marker at that resourceVersion, "" if there was none.
	Marker string
	// ObservedAt is when the watcher saw the event. It decides nothing.
	ObservedAt time.Time
	// FoundsRecord says that an Added transaction of a node without a record makes its
	// first one. Watchers set it while they record updates: without those, a record
	// made so early would only ever bring back labels that are out of date.
	FoundsRecord bool
	// AtOnce says that somebody waits for it: it is applied without delay, as an Added one is. It decides nothing else.
	AtOnce bool
}

// Of returns the transaction of an event that left a Node in this state. It is not known when the event was observed,
// nor whether it founds a record.
func Of(typ Type, n *metav1.PartialObjectMetadata) Transaction {
	own, marker := labels.Split(n.Labels)
	return Transaction{Type: typ, Node: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: own, Marker: marker}
}

// hashLength is the length in characters of a node hash: SHA-256 in hexadecimal.
const hashLength = 2 * sha256.Size

// NodeHash returns the SHA-256 of a node's name in hexadecimal, by which its transactions are named.
func NodeHash(node string) string {
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:])
}

// IsSameEvent says whether two transactions of one name record the same event. One name can have two: for the last state that a
// watcher saw of a node whose delete it missed there may be an update, too; and an etcd restored from a backup gives resourceVersions again.
func (t Transaction) IsSameEvent(other Transaction) bool {
	return t.Type == other.Type && t.UID == other.UID
}

// Name returns the name of the transaction's ConfigMap.
func (t Transaction) Name() string {
	return NodeHash(t.Node) + "." + t.ResourceVersion
}

// SplitName returns the node hash and the resourceVersion that are in the name
// of a transaction's ConfigMap; ok is false for any other name.
func SplitName(name string) (nodeHash, resourceVersion string, ok bool) {
	nodeHash, resourceVersion, found := strings.Cut(name, ".")
	if !found || len(nodeHash) != hashLength || strings.Trim(nodeHash, "0123456789abcdef") != "" || !wellFormed(resourceVersion) {
		return "", "", false
	}
	return nodeHash, resourceVersion, true
}

// Compare orders the transactions of one node: -1 if a comes before b, 0 if
// both record the same resourceVersion, 1 if a comes after b. Both are to have
// well-formed resourceVersions, as those from [Parse] have; else the result is 0.
func Compare(a, b Transaction) int {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
}

// wellFormed says whether rv is a resourceVersion that a live object can have.
func wellFormed(rv string) bool {
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}
