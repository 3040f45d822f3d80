package record

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const (
	// WithheldAnnotation holds the labels of a machine that are saved but not restored.
	WithheldAnnotation = "nodekeeper.dev/withheld-labels"

	providerIDAnnotation  = "nodekeeper.dev/provider-id"
	systemUUIDAnnotation  = "nodekeeper.dev/system-uuid"
	identityUIDAnnotation = "nodekeeper.dev/identity-uid"
	identityRVAnnotation  = "nodekeeper.dev/identity-rv"

	// maxWithheldBytes bounds the withheld labels of a record: the annotations of an object are
	// limited to 256 KiB in total, three of them may have [labels.MaxKeysBytes] each, and the owners
	// half as much as these.
	maxWithheldBytes = 32 << 10
)

// Identity is the machine of an incarnation. The zero value means that it was not read.
type Identity struct {
	// UID is the incarnation; "" if it was not read. If it is set and the identity is zero, the
	// Node reported none.
	UID types.UID
	identity.Identity
}

// Withheld is a set of labels that were saved from one machine and not restored onto
// another. They are restored when that machine returns.
type Withheld struct {
	Labels map[string]string
	// Source is the incarnation that the labels were saved from.
	Source types.UID
	// Identity is the machine of the source. If it is zero, the machine is unknown, and the labels
	// are never restored automatically.
	Identity identity.Identity
	// State is how far their restore onto an incarnation has come.
	State WithheldState
	// Refusals are the reasons why the API server has refused labels, by key. They decide nothing.
	Refusals map[string]string
}

// storedWithheld is the form of a set in the annotation.
type storedWithheld struct {
	Labels     map[string]string `json:"labels"`
	Source     types.UID         `json:"sourceUID,omitempty"`
	ProviderID string            `json:"providerID,omitempty"`
	SystemUUID string            `json:"systemUUID,omitempty"`
	WaitingFor types.UID         `json:"waitingForUID,omitempty"`
	Marker     string            `json:"marker,omitempty"`
	RestoredAt string            `json:"putBackRV,omitempty"`
	RefusedFor types.UID         `json:"refusedForUID,omitempty"`
	GoneUID    types.UID         `json:"unconfirmedForUID,omitempty"`
}

// IsLeft reports whether the labels were not saved: they are on the Node, since the API server has
// refused to remove them. They are no labels of the next incarnation.
func (w Withheld) IsLeft() bool { return w.State.IsRefusedFor(w.Source) }

func (w Withheld) equal(other Withheld) bool {
	return maps.Equal(w.Labels, other.Labels) && w.Source == other.Source && w.Identity == other.Identity && w.State == other.State
}

// equalRestricted reports whether two records have the same identity and withheld labels.
func (r Record) equalRestricted(other Record) bool {
	return r.Identity == other.Identity && slices.EqualFunc(r.Withheld, other.Withheld, Withheld.equal)
}

// WithheldKeys returns the keys of all withheld labels.
func (r Record) WithheldKeys() labels.Keys {
	return labels.KeysOf(func(yield func(string) bool) {
		for _, w := range r.Withheld {
			for key := range w.Labels {
				if !yield(key) {
					return
				}
			}
		}
	})
}

// All returns all saved labels, including withheld ones.
func (r Record) All() map[string]string {
	all := make(map[string]string, len(r.Labels))
	maps.Copy(all, r.Labels)
	for _, w := range r.Withheld {
		if !w.IsLeft() {
			maps.Copy(all, w.Labels)
		}
	}
	return all
}

// WaitsFor reports whether withheld labels wait for an incarnation, see [WithheldState.WaitsFor].
func (r Record) WaitsFor(uid types.UID) bool {
	return slices.ContainsFunc(r.Withheld, func(w Withheld) bool { return w.State.WaitsFor(uid) })
}

// Bounded returns the sets that fit into a record, preferring the newest, and the keys of the
// others.
func Bounded(sets []Withheld) (kept []Withheld, without labels.Keys) {
	if len(formatWithheld(sets)) <= maxWithheldBytes {
		return sets, ""
	}
	for _, w := range sets {
		if with := append(slices.Clone(kept), w); len(formatWithheld(with)) <= maxWithheldBytes {
			kept = with
		} else {
			without = without.Union(labels.KeysOf(maps.Keys(w.Labels)))
		}
	}
	return kept, without
}

// parseIdentity parses the machine that the labels came from. Releases without identities leave it
// unchanged when they replace the labels or note a restore; it is then invalid.
func parseIdentity(cm *corev1.ConfigMap, seenAt revision.Revision) Identity {
	uid := types.UID(cm.Annotations[identityUIDAnnotation])
	if uid == "" || cm.Annotations[identityRVAnnotation] != seenAt.String() {
		return Identity{}
	}
	return Identity{UID: uid, Identity: identity.Identity{
		ProviderID: cm.Annotations[providerIDAnnotation], SystemUUID: cm.Annotations[systemUUIDAnnotation],
	}}
}

// parseWithheld parses the withheld labels. Keys that are also among the labels of users are
// dropped, because those are newer: they were saved by a release without withheld labels.
func parseWithheld(cm *corev1.ConfigMap, newer labels.Keys) ([]Withheld, error) {
	text, ok := cm.Annotations[WithheldAnnotation]
	if !ok {
		return nil, nil
	}
	fault := func(err error) error { return unreadable("annotation %s: %v", WithheldAnnotation, err) }
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var stored []storedWithheld
	if err := decoder.Decode(&stored); err != nil {
		return nil, fault(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, unreadable("annotation %s: unexpected data after the JSON value", WithheldAnnotation)
	}
	var sets []Withheld
	seen, isNewer := map[string]bool{}, newer.Set()
	for _, s := range stored {
		if err := txn.Validate(s.Labels); err != nil {
			return nil, fault(err)
		}
		w := Withheld{
			Labels: map[string]string{}, Source: s.Source, Identity: identity.Identity{ProviderID: s.ProviderID, SystemUUID: s.SystemUUID},
		}
		var err error
		if w.State, err = s.state(); err != nil {
			return nil, fault(err)
		}
		for key, value := range s.Labels {
			if seen[key] && !w.IsLeft() {
				return nil, unreadable("annotation %s: label %q is duplicate", WithheldAnnotation, key)
			}
			seen[key] = seen[key] || !w.IsLeft() // another set may have the key's saved value
			if !isNewer[key] || w.State.IsRefused() {
				w.Labels[key] = value
			}
		}
		if len(w.Labels) > 0 {
			sets = append(sets, w)
		}
	}
	setRefusals(sets, cm.Annotations[RefusalsAnnotation])
	return sets, nil
}

func formatWithheld(sets []Withheld) string {
	if len(sets) == 0 {
		return ""
	}
	stored := make([]storedWithheld, len(sets))
	for i, w := range sets {
		stored[i] = storedWithheld{
			Labels: w.Labels, Source: w.Source, ProviderID: w.Identity.ProviderID, SystemUUID: w.Identity.SystemUUID,
		}
		stored[i].setState(w.State)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return "" // unreachable: it contains only strings
	}
	return string(text)
}

// writeRestricted stores the identity and the withheld labels of the record.
func (r Record) writeRestricted(annotations map[string]string) {
	identityRV := ""
	if r.Identity.UID != "" {
		identityRV = r.seenAt().String()
	}
	setOrDelete(annotations, identityUIDAnnotation, string(r.Identity.UID))
	setOrDelete(annotations, identityRVAnnotation, identityRV)
	setOrDelete(annotations, providerIDAnnotation, r.Identity.ProviderID)
	setOrDelete(annotations, systemUUIDAnnotation, r.Identity.SystemUUID)
	setOrDelete(annotations, WithheldAnnotation, formatWithheld(r.Withheld))
	setOrDelete(annotations, RefusalsAnnotation, formatRefusals(r.Withheld))
}
