package contract

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
)

// View is what a controller knows of one pod: its contract and its acknowledgement.
type View struct {
	// ConfigMap is the uid of the object that has the contract; empty if there is none.
	ConfigMap types.UID
	// Unreadable means that there is a ConfigMap, and its contract cannot be read.
	Unreadable bool
	Contract   Contract
	// Digest is that of the contract as it is stored.
	Digest string
	// Ack is what the pod's Lease says.
	Ack Ack
	// Seen are the former versions of this ConfigMap that the controller has seen.
	Seen Versions
}

// Versions are the last versions of one ConfigMap. The zero value has none. A Versions is never
// changed.
type Versions struct {
	of   types.UID
	list []version
}

type version struct {
	generation int64
	digest     string
}

// maxVersions bounds what is remembered of each pod. A pod that is further behind acknowledges a
// later version soon.
const maxVersions = 16

// With returns the versions with one more. Those of another ConfigMap are forgotten.
func (v Versions) With(configMap types.UID, generation int64, digest string) Versions {
	seen := version{generation, digest}
	next := Versions{of: configMap}
	if v.of == configMap {
		if len(v.list) > 0 && v.list[len(v.list)-1] == seen {
			return v
		}
		next.list = append(next.list, v.list[max(len(v.list)-maxVersions+1, 0):]...)
	}
	next.list = append(next.list, seen)
	return next
}

func (v Versions) has(configMap types.UID, seen version) bool {
	return v.of == configMap && slices.Contains(v.list, seen)
}

// Known reports whether the acknowledgement is one of the contract's present version, or of an
// earlier version of the same ConfigMap. A number alone proves nothing: it may be that of a lost
// ConfigMap, or of one that was overwritten when etcd was restored.
func (v *View) Known() bool {
	acknowledged := version{v.Ack.Generation, v.Ack.Digest}
	return v.ConfigMap != "" && !v.Unreadable && v.Ack.Digest != "" &&
		(acknowledged == version{v.Contract.Generation, v.Digest} || v.Seen.has(v.ConfigMap, acknowledged))
}

// entryOf returns the entry of a resource for an incarnation if its last change is acknowledged and
// it was built from a decision that is not older than since.
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

// Acknowledged reports whether the incarnation of a share has acknowledged all of it. Workers that stop or
// fail do not matter here: see [View.Works].
func (v *View) Acknowledged(uid types.UID, share *placement.Placement) bool {
	set, err := share.Set()
	e := v.entryOf(uid, share.Incarnation, share.Since)
	if err != nil || e == nil {
		return false
	}
	for _, index := range set {
		if _, lists := e.Lists(index); !lists {
			return false
		}
	}
	return true
}

// Works reports whether a share is acknowledged and its incarnation works on one index of it.
func (v *View) Works(uid types.UID, share *placement.Placement, index int32) bool {
	return v.Acknowledged(uid, share) && !v.Ack.Stops(uid, index) && !v.Ack.Fails(uid)
}

// released reports whether an incarnation has acknowledged that it no longer works on an index which
// was taken from it by the decision since.
func (v *View) released(uid types.UID, incarnation string, since int64, index int32) bool {
	e := v.entryOf(uid, incarnation, since)
	if e == nil {
		return false
	}
	_, lists := e.Lists(index)
	return !lists && !v.Ack.Stops(uid, index)
}
