package contract

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// View is a controller's knowledge of one pod: its contract and its acknowledgement.
type View struct {
	// ConfigMap is the UID of the ConfigMap with the contract, or empty if there is none.
	ConfigMap types.UID
	// Unreadable is set if the contract in the ConfigMap cannot be parsed.
	Unreadable bool
	Contract   Contract
	// Digest is the digest of the stored contract.
	Digest string
	// Ack is the acknowledgement on the pod's Lease.
	Ack Ack
	// Seen are the earlier versions of this ConfigMap that the controller has observed.
	Seen Versions
}

// Versions are the latest versions of one ConfigMap. The zero value is empty. A Versions is
// immutable.
type Versions struct {
	of   types.UID
	list []version
}

type version struct {
	generation int64
	digest     string
}

// maxVersions bounds the versions that are remembered for each pod. A pod that is further behind
// will acknowledge a later version soon.
const maxVersions = 16

// With returns a Versions with one more version. It discards the versions of any other ConfigMap,
// and those whose generations are not below the new one: if the ConfigMap has gone back to an
// earlier version, as by a restore of etcd, then no controller knows any longer what those versions
// granted, and their acknowledgements prove nothing.
func (v Versions) With(configMap types.UID, generation int64, digest string) Versions {
	seen := version{generation, digest}
	next := Versions{of: configMap}
	if v.of == configMap {
		if len(v.list) > 0 && v.list[len(v.list)-1] == seen {
			return v
		}
		for _, earlier := range v.list {
			if earlier.generation < generation {
				next.list = append(next.list, earlier)
			}
		}
		next.list = next.list[max(len(next.list)-maxVersions+1, 0):]
	}
	next.list = append(next.list, seen)
	return next
}

func (v Versions) has(configMap types.UID, seen version) bool {
	return v.of == configMap && slices.Contains(v.list, seen)
}

// Known reports whether the acknowledgement refers to the contract's present version or to an
// observed earlier version of the same ConfigMap. A generation alone proves nothing: it may refer
// to a deleted ConfigMap, or to one that was overwritten when etcd was restored.
func (v *View) Known() bool {
	acknowledged := version{v.Ack.Generation, v.Ack.Digest}
	return v.ConfigMap != "" && !v.Unreadable && v.Ack.Digest != "" &&
		(acknowledged == version{v.Contract.Generation, v.Digest} || v.Seen.has(v.ConfigMap, acknowledged))
}

// entryOf returns the entry of a resource for an incarnation if the entry's last change is
// acknowledged and the entry was built from the decision since or a later one. Otherwise it returns
// nil.
func (v *View) entryOf(uid types.UID, incarnation string, since int64) *Entry {
	if v.Contract.Incarnation != incarnation || v.Ack.Incarnation != incarnation || !v.Known() {
		return nil
	}
	e := v.Contract.Entry(uid)
	if e == nil || e.Decision < since || e.Changed > v.Ack.Generation {
		return nil
	}
	return e
}

// Acknowledged reports whether the incarnation of a share has acknowledged all of the share,
// regardless of work that is stopping or failing; see [View.Works].
func (v *View) Acknowledged(uid types.UID, share *placement.Placement) bool {
	set, err := share.Set()
	e := v.entryOf(uid, share.Incarnation, share.Since)
	if err != nil || e == nil {
		return false
	}
	for _, index := range set {
		if _, listed := e.Lists(index); !listed {
			return false
		}
	}
	return true
}

// Working returns the indexes of a share that its incarnation works on. Others may still wait for a
// pod that hands them over.
func (v *View) Working(uid types.UID, share *placement.Placement) schedule.Set {
	set, err := share.Set()
	e := v.entryOf(uid, share.Incarnation, share.Since)
	if err != nil || e == nil || v.Ack.Fails(uid) {
		return nil
	}
	return slices.DeleteFunc(set, func(index int32) bool {
		_, listed := e.Lists(index)
		return !listed || v.Ack.Stops(uid, index)
	})
}

// isAhead reports whether the incarnation has acknowledged a generation that its contract has not
// exceeded, and that is not known: it would not follow the contract.
func (v *View) isAhead() bool {
	acknowledged := v.acknowledgedGeneration()
	return v.Contract.Incarnation == v.Ack.Incarnation && acknowledged > 0 && acknowledged >= v.Contract.Generation && !v.Known()
}

// acknowledgedGeneration returns the generation of the acknowledgement. It returns 0 if no contract
// can exceed that generation, so that a faulty agent stops no pod but its own.
func (v *View) acknowledgedGeneration() int64 {
	if v.Ack.Generation < 0 || v.Ack.Generation >= placement.MaxNumber {
		return 0
	}
	return v.Ack.Generation
}

// released reports whether an incarnation has acknowledged that it no longer works on an index that
// the decision since took from it.
func (v *View) released(uid types.UID, incarnation string, since int64, index int32) bool {
	e := v.entryOf(uid, incarnation, since)
	if e == nil {
		return false
	}
	_, listed := e.Lists(index)
	return !listed && !v.Ack.Stops(uid, index)
}
