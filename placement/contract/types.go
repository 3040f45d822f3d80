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
	// EndedAnnotation on the Lease names the last incarnation that is known to have ended.
	EndedAnnotation = "placement.nodekeeper.dev/ended"
	// PoolLabel on contracts and Leases has the name of the pool.
	PoolLabel = "placement.nodekeeper.dev/pool"
)

// Reference names a resource.
type Reference struct {
	UID                               types.UID
	APIVersion, Kind, Namespace, Name string
}

// Contract is what one incarnation may work on.
type Contract struct {
	// Incarnation is empty in a contract that grants nothing to anybody.
	Incarnation string
	// Generation grows with every change.
	Generation int64
	// Entries are in the order of their uids.
	Entries []Entry

	unknown fields
}

// Entry is the part of a contract for one resource.
type Entry struct {
	Reference
	// Generation is that of the resource.
	Generation int64
	// Decision is the number of the decision that the entry was built from.
	Decision int64
	// Changed is the generation of the contract in which the entry last changed.
	Changed int64
	// Of is how many virtual replicas the resource has in all.
	Of int32
	// Replicas has the epoch of each index that may be worked on: the number of the decision that
	// granted it. An entry may list none.
	Replicas map[int32]int64
	// Payload is what the controller of the resource tells the pod; nil for nothing.
	Payload json.RawMessage

	unknown fields
}

// Ack says how far an incarnation is: nothing that the contract does not list runs, except for what
// is stopping; everything that it lists works, except for what is failing.
type Ack struct {
	Incarnation string
	// Generation and Digest are those of the contract.
	Generation int64
	Digest     string
	// Stopping has the indexes that still run though they are not listed, by the uids of their resources.
	Stopping map[types.UID]schedule.Set
	// Failing says why something that is listed does not work, by the uid of its resource; Everything
	// stands for all.
	Failing map[types.UID]string

	unknown fields
}

// Everything stands for all resources in Ack.Failing.
const Everything types.UID = "*"

// fields are the ones that a later version has added. They survive decoding and encoding.
type fields map[string]json.RawMessage

// Entry returns the entry of a resource, nil if there is none.
func (c *Contract) Entry(uid types.UID) *Entry {
	at, has := slices.BinarySearchFunc(c.Entries, uid, func(e Entry, uid types.UID) int { return cmp.Compare(e.UID, uid) })
	if !has {
		return nil
	}
	return &c.Entries[at]
}

// Lists reports whether an index may be worked on, and by which epoch. The receiver may be nil.
func (e *Entry) Lists(index int32) (epoch int64, lists bool) {
	if e == nil {
		return 0, false
	}
	epoch, lists = e.Replicas[index]
	return epoch, lists
}

// Highest returns the highest decision and epoch that an entry has.
func (e *Entry) Highest() int64 {
	highest := e.Decision
	for _, epoch := range e.Replicas {
		highest = max(highest, epoch)
	}
	return highest
}

// Stops reports whether an index of a resource still runs though it is not listed.
func (a *Ack) Stops(uid types.UID, index int32) bool { return a.Stopping[uid].Has(index) }

// Fails reports whether something of a resource is listed and does not work.
func (a *Ack) Fails(uid types.UID) bool {
	_, one := a.Failing[uid]
	_, all := a.Failing[Everything]
	return one || all
}
