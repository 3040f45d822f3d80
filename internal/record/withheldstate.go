package record

import (
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/revision"
)

// WithheldState is how far the restore of withheld labels has come. It is [Kept], the zero value,
// or the result of [WaitingFor], [DecidedFor], [Unconfirmed], [RestoredBy] or [RefusedFor].
type WithheldState struct {
	uid     types.UID
	marker  string
	at      revision.Revision
	refused types.UID
	gone    types.UID
}

// Kept is the state of labels whose machine has not returned.
var Kept WithheldState

// WaitingFor is the state of labels that wait until an incarnation, which has the other labels of
// the record, reports its identity.
func WaitingFor(uid types.UID) WithheldState { return WithheldState{uid: uid} }

// DecidedFor is the state of labels that an incarnation gets. The write that restores them sets the
// marker.
func DecidedFor(uid types.UID, marker string) WithheldState {
	return WithheldState{uid: uid, marker: marker}
}

// Unconfirmed is the state of labels whose incarnation was gone before it was known whether the
// write that sets the marker had restored them. They are kept, unless a state of that incarnation
// with the marker is saved: then it had them. Without a marker the state is [Kept].
func Unconfirmed(uid types.UID, marker string) WithheldState {
	if marker == "" {
		return Kept
	}
	return WithheldState{gone: uid, marker: marker}
}

// RestoredBy is the state of labels that were seen on a Node at a revision, after the write that
// set the marker. They stay withheld until a state of the Node from then on is saved.
func RestoredBy(marker string, at revision.Revision) WithheldState {
	return WithheldState{marker: marker, at: at}
}

// RefusedFor is the state of labels that the API server has refused to set on an incarnation. They
// are tried again on the next one.
func RefusedFor(uid types.UID) WithheldState { return WithheldState{refused: uid} }

// IsRefused reports whether the state is [RefusedFor] any incarnation.
func (s WithheldState) IsRefused() bool { return s.refused != "" }

// IsRefusedFor reports whether the state is [RefusedFor] this incarnation.
func (s WithheldState) IsRefusedFor(uid types.UID) bool { return s.refused != "" && s.refused == uid }

// IsDecided reports whether the state is [DecidedFor] any incarnation.
func (s WithheldState) IsDecided() bool { return s.uid != "" && s.marker != "" }

// IsDecidedFor reports whether the state is [DecidedFor] this incarnation.
func (s WithheldState) IsDecidedFor(uid types.UID) bool { return s.IsDecided() && s.uid == uid }

// IsUnconfirmed reports whether the state is [Unconfirmed] with any marker.
func (s WithheldState) IsUnconfirmed() bool { return s.gone != "" }

// IsUnconfirmedFor reports whether the state is [Unconfirmed] for this incarnation.
func (s WithheldState) IsUnconfirmedFor(uid types.UID) bool { return s.gone != "" && s.gone == uid }

// IsRestored reports whether the state is [RestoredBy] any write.
func (s WithheldState) IsRestored() bool { return !s.at.IsZero() }

// Awaits returns the incarnation that labels wait for: to report its identity, or to get them. It
// is "" if there is none.
func (s WithheldState) Awaits() types.UID { return s.uid }

// WaitsFor reports whether labels await this incarnation, see [WithheldState.Awaits].
func (s WithheldState) WaitsFor(uid types.UID) bool { return uid != "" && s.uid == uid }

// Marker returns the marker of the write that restores or has restored the labels, or "" if none
// was decided.
func (s WithheldState) Marker() string { return s.marker }

// RestoredAt returns the revision at which the labels were seen restored, zero if they were not.
func (s WithheldState) RestoredAt() revision.Revision { return s.at }

// state parses the state of a stored set. A marker that no restore would set is ignored.
func (s storedWithheld) state() (WithheldState, error) {
	if s.Marker != "" {
		if _, err := revision.Parse(s.Marker); err != nil {
			return Kept, err
		}
	}
	switch {
	case s.RefusedFor != "":
		return RefusedFor(s.RefusedFor), nil
	case s.RestoredAt != "":
		at, err := revision.Parse(s.RestoredAt)
		return RestoredBy(s.Marker, at), err
	case s.WaitingFor != "":
		return DecidedFor(s.WaitingFor, s.Marker), nil // waiting if there is no marker
	case s.GoneUID != "":
		return Unconfirmed(s.GoneUID, s.Marker), nil
	}
	return Kept, nil
}
