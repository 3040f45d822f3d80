package contract

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/schedule"
)

const (
	// DataKey is the key of the contract in its ConfigMap.
	DataKey = "contract"
	// AcknowledgedAnnotation is the key of the acknowledgement on the Lease.
	AcknowledgedAnnotation = "placement.nodekeeper.dev/acknowledged"
	// EndedAnnotation is the key of the annotation on the Lease that names the last incarnation
	// known to have ended.
	EndedAnnotation = "placement.nodekeeper.dev/ended"
	// EndedBeforeAnnotation is the key of the annotation on the Lease that names the incarnations
	// that are known to have ended before, separated by commas, the latest first.
	EndedBeforeAnnotation = "placement.nodekeeper.dev/ended-before"
	// LeaseAnnotation is the key of the annotation on the Lease with the UID of that Lease. A
	// restarted process adopts an incarnation only if it is right: a Lease that was created again
	// from a copy names an incarnation that may have ended.
	LeaseAnnotation = "placement.nodekeeper.dev/lease"
	// ZoneAnnotation is the key of the annotation on the Lease with the zone of the pod.
	ZoneAnnotation = "placement.nodekeeper.dev/zone"
	// CapacityAnnotation is the key of the annotation on the Lease with the capacity of the pod.
	CapacityAnnotation = "placement.nodekeeper.dev/capacity"
	// UnschedulableAnnotation is the key of the annotation on the Lease with which users make the
	// work of a pod move elsewhere. Its value is "true".
	UnschedulableAnnotation = "placement.nodekeeper.dev/unschedulable"
	// PoolLabel is the key of the label on contracts and Leases that names the pool.
	PoolLabel = "placement.nodekeeper.dev/pool"
)

// Reference identifies a resource.
type Reference struct {
	UID                               types.UID
	APIVersion, Kind, Namespace, Name string
}

// Contract specifies what one incarnation may work on.
type Contract struct {
	// Incarnation is empty in a contract that grants nothing.
	Incarnation string
	// Generation increases with every change.
	Generation int64
	// Entries are sorted by UID.
	Entries []Entry

	unknown fields
}

// Entry is the part of a contract for one resource.
type Entry struct {
	Reference
	// Generation is the generation of the resource.
	Generation int64
	// Decision is the number of the decision from which the entry was built.
	Decision int64
	// Changed is the generation of the contract in which the entry last changed.
	Changed int64
	// Of is the total number of virtual replicas of the resource.
	Of int32
	// Replicas maps each index that the incarnation may work on to its epoch, which is the number
	// of the decision that granted it. It may be empty.
	Replicas map[int32]int64
	// Payload is data from the controller of the resource to the pod, or nil.
	Payload json.RawMessage

	unknown fields
}

// Ack is an incarnation's acknowledgement of a contract: nothing runs that the contract does not
// list, except for Stopping, and everything that it lists works, except for Failing.
type Ack struct {
	Incarnation string
	// Generation and Digest identify the acknowledged version of the contract.
	Generation int64
	Digest     string
	// Stopping holds the indexes that still run but are not listed, by the UID of their resource.
	Stopping map[types.UID]schedule.Set
	// Failing holds the reason why something listed does not work, by the UID of its resource. The
	// key [Everything] stands for all resources.
	Failing map[types.UID]string

	unknown fields
}

// Everything is the key in Ack.Failing that stands for all resources.
const Everything types.UID = "*"

// fields are unknown JSON fields, which a later version has added. They survive decoding and
// encoding.
type fields map[string]json.RawMessage

// Entry returns the entry of a resource, or nil if the contract has none.
func (c *Contract) Entry(uid types.UID) *Entry {
	at, ok := slices.BinarySearchFunc(c.Entries, uid, func(e Entry, uid types.UID) int { return cmp.Compare(e.UID, uid) })
	if !ok {
		return nil
	}
	return &c.Entries[at]
}

// Lists returns the epoch of an index, and whether the entry lists it. The receiver may be nil.
func (e *Entry) Lists(index int32) (epoch int64, listed bool) {
	if e == nil {
		return 0, false
	}
	epoch, listed = e.Replicas[index]
	return epoch, listed
}

// Highest returns the highest decision or epoch in an entry.
func (e *Entry) Highest() int64 {
	highest := e.Decision
	for _, epoch := range e.Replicas {
		highest = max(highest, epoch)
	}
	return highest
}

// Stops reports whether an index of a resource still runs but is not listed.
func (a *Ack) Stops(uid types.UID, index int32) bool { return a.Stopping[uid].Has(index) }

// Fails reports whether something of a resource is listed but does not work.
func (a *Ack) Fails(uid types.UID) bool {
	_, one := a.Failing[uid]
	_, all := a.Failing[Everything]
	return one || all
}
