// Package identity compares machines. A Node identifies its machine by two fields: spec.providerID,
// the cloud's name for it, and status.nodeInfo.systemUUID, its firmware's. The kubelet reports
// both. The package is pure.
package identity

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Identity is the machine that a Node reports to be. Empty fields have not been reported.
type Identity struct {
	ProviderID, SystemUUID string
}

// MaxBytes bounds each field, because a kubelet can report any value, and it is stored in an
// annotation.
const MaxBytes = 1 << 10

// Of returns the identity that a Node reports. Fields larger than [MaxBytes] count as not reported.
func Of(n *corev1.Node) Identity {
	return Identity{ProviderID: bounded(n.Spec.ProviderID), SystemUUID: bounded(n.Status.NodeInfo.SystemUUID)}
}

func bounded(reported string) string {
	if len(reported) > MaxBytes {
		return ""
	}
	return reported
}

// IsZero reports whether both fields are empty.
func (i Identity) IsZero() bool { return i == Identity{} }

// printable returns a value reported by a kubelet, quoted if it contains special characters.
func printable(reported string) string {
	if quoted := strconv.Quote(reported); quoted != `"`+reported+`"` {
		return quoted
	}
	return reported
}

// String formats the identity for users. It contains no terminal control characters.
func (i Identity) String() string {
	var reported []string
	if i.ProviderID != "" {
		reported = append(reported, "providerID "+printable(i.ProviderID))
	}
	if i.SystemUUID != "" {
		reported = append(reported, "systemUUID "+printable(i.SystemUUID))
	}
	return strings.Join(reported, ", ")
}

// IsComplete reports whether both fields are set.
func (i Identity) IsComplete() bool { return i.ProviderID != "" && i.SystemUUID != "" }

// Filled returns i with empty fields taken from an earlier identity of the same machine.
func (i Identity) Filled(earlier Identity) Identity {
	if i.ProviderID == "" {
		i.ProviderID = earlier.ProviderID
	}
	if i.SystemUUID == "" {
		i.SystemUUID = earlier.SystemUUID
	}
	return i
}

// Verdict is the result of comparing two identities.
type Verdict int

const (
	// Undecided means that the Node has not reported enough yet to rule out that it is the machine.
	Undecided Verdict = iota
	// Same means that one field is equal: a cloud may give an instance another firmware, and a
	// provider may rename a machine. Some machines share a systemUUID, see
	// docs/explanation/labels.md.
	Same
	// Other means that the Node reports every field that the machine had, and none is equal.
	Other
)

// Compare compares the saved identity of a machine with a Node's. While the Node
// has not reported a field that the machine had, a difference is undecided.
func Compare(saved, reported Identity) Verdict {
	isOpen, differs := false, false
	for _, kind := range kinds(saved, reported) {
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

// Contradicts reports whether a field is set in both but differs.
func (i Identity) Contradicts(other Identity) bool {
	for _, kind := range kinds(i, other) {
		if kind[0] != "" && kind[1] != "" && kind[0] != kind[1] {
			return true
		}
	}
	return false
}

// kinds returns the fields of two identities in pairs.
func kinds(a, b Identity) [2][2]string {
	return [2][2]string{{a.ProviderID, b.ProviderID}, {canonical(a.SystemUUID), canonical(b.SystemUUID)}}
}

// canonical returns the same text for every form in which firmware and kernels report a UUID: in
// upper or lower case, and with its first three groups in either byte order. SMBIOS 2.6 changed the
// order, so an upgrade of virtual hardware or of a kernel swaps the bytes.
func canonical(uuid string) string {
	uuid = strings.ToLower(uuid)
	groups := strings.Split(uuid, "-")
	if len(groups) != 5 || len(groups[0]) != 8 || len(groups[1]) != 4 || len(groups[2]) != 4 {
		return uuid
	}
	for i := range 3 {
		groups[i] = swapped(groups[i])
	}
	return min(uuid, strings.Join(groups, "-"))
}

// swapped reverses the order of the bytes of a number in hexadecimal digits.
func swapped(digits string) string {
	var b strings.Builder
	for i := len(digits) - 2; i >= 0; i -= 2 {
		b.WriteString(digits[i : i+2])
	}
	return b.String()
}

// settling is how long after its creation a Node may report more of its identity. A kubelet reports
// the systemUUID in the request that creates its Node. A cloud controller manager that sets the
// providerID retries every five minutes.
const settling = 10 * time.Minute

// Settled reports whether a Node has had the time to report its whole identity. Created is zero if
// the Node is being created.
func Settled(created, now time.Time) bool { return !created.IsZero() && now.Sub(created) >= settling }
