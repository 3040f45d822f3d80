// Package identity compares machines. A Node says in two places which machine it is: the cloud's name
// for it in spec.providerID, and that of its firmware in status.nodeInfo.systemUUID. Both are what the
// kubelet says. The package is pure.
package identity

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Identity is what a Node says of which machine it is. A field is "" if it does not say that; the zero
// value says nothing.
type Identity struct {
	ProviderID, SystemUUID string
}

// MaxBytes bounds each field. A kubelet can say anything, and it is stored in an annotation.
const MaxBytes = 1 << 10

// Of returns what a Node says. A field that is larger than [MaxBytes] was not said.
func Of(n *corev1.Node) Identity {
	return Identity{ProviderID: bounded(n.Spec.ProviderID), SystemUUID: bounded(n.Status.NodeInfo.SystemUUID)}
}

func bounded(said string) string {
	if len(said) > MaxBytes {
		return ""
	}
	return said
}

// IsZero reports whether nothing is said.
func (i Identity) IsZero() bool { return i == Identity{} }

// printable returns a text that a kubelet has said as it is, or quoted if it is not plain.
func printable(said string) string {
	if quoted := strconv.Quote(said); quoted != `"`+said+`"` {
		return quoted
	}
	return said
}

// String returns it for people. It has no characters that a terminal would act on.
func (i Identity) String() string {
	var said []string
	if i.ProviderID != "" {
		said = append(said, "providerID "+printable(i.ProviderID))
	}
	if i.SystemUUID != "" {
		said = append(said, "systemUUID "+printable(i.SystemUUID))
	}
	return strings.Join(said, ", ")
}

// IsComplete reports whether all is said that can be.
func (i Identity) IsComplete() bool { return i.ProviderID != "" && i.SystemUUID != "" }

// Filled returns i, with what it does not say taken from an earlier identity of the same machine.
func (i Identity) Filled(earlier Identity) Identity {
	if i.ProviderID == "" {
		i.ProviderID = earlier.ProviderID
	}
	if i.SystemUUID == "" {
		i.SystemUUID = earlier.SystemUUID
	}
	return i
}

// Verdict is whether two identities are of one machine.
type Verdict int

const (
	// Undecided means that the Node has not said yet all that could show that it is the machine.
	Undecided Verdict = iota
	// Same means that one kind is equal: a cloud may give an instance another firmware, and a provider
	// may give a machine another name. Some machines share a systemUUID, see docs/explanation/labels.md.
	Same
	// Other means that the Node says all that the machine had said, and none of it is equal.
	Other
)

// Compare compares what a machine has said with what a Node says. As long as the Node has not said
// something that the machine had, it is undecided whether it is another one.
func Compare(saved, said Identity) Verdict {
	isOpen, differs := false, false
	for _, kind := range kinds(saved, said) {
		switch {
		case kind[0] == "":
		case kind[1] == "":
			isOpen = true
		case kind[0] == kind[1]:
			return Same
		default:
			differs = true
		}
	}
	if differs && !isOpen {
		return Other
	}
	return Undecided
}

// Contradicts reports whether something of the same kind is said in both and is not the same.
func (i Identity) Contradicts(other Identity) bool {
	for _, kind := range kinds(i, other) {
		if kind[0] != "" && kind[1] != "" && kind[0] != kind[1] {
			return true
		}
	}
	return false
}

// kinds returns what two identities say of each kind. A firmware may report the same UUID in upper case
// or in lower case, as its kernel reads it.
func kinds(a, b Identity) [2][2]string {
	return [2][2]string{{a.ProviderID, b.ProviderID}, {strings.ToLower(a.SystemUUID), strings.ToLower(b.SystemUUID)}}
}

// The annotations by which the metadata of a Node in memory keeps what the Node says.
const (
	readAnnotation       = "nodekeeper.dev/identity-read"
	providerIDAnnotation = "nodekeeper.dev/provider-id"
	systemUUIDAnnotation = "nodekeeper.dev/system-uuid"
)

// Clear takes off the metadata of a Node what its annotations say of its identity: whoever may patch
// the Node can write these.
func Clear(n *metav1.PartialObjectMetadata) {
	for _, key := range []string{readAnnotation, providerIDAnnotation, systemUUIDAnnotation} {
		delete(n.Annotations, key)
	}
}

// Note notes in the metadata of a Node, in memory only, what the Node says.
func Note(n *metav1.PartialObjectMetadata, i Identity) {
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[readAnnotation] = "true"
	n.Annotations[providerIDAnnotation], n.Annotations[systemUUIDAnnotation] = i.ProviderID, i.SystemUUID
}

// Noted returns what [Note] noted. It is not ok if that was never done: then nobody knows what the
// Node says.
func Noted(n *metav1.PartialObjectMetadata) (i Identity, ok bool) {
	i = Identity{ProviderID: n.Annotations[providerIDAnnotation], SystemUUID: n.Annotations[systemUUIDAnnotation]}
	return i, n.Annotations[readAnnotation] != ""
}
