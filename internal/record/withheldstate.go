package record

import (
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/revision"
)

// WithheldState is how far the restore of withheld labels has come. It is [Kept], the zero value,
// or the result of [WaitingFor], [DecidedFor], [Unconfirmed], [RestoredBy] or [RefusedFor].
type WithheldState struct {
	kind   withheldKind
	uid    types.UID         // of the incarnation, unless kept or restored
	marker string            // of the write that restores, if decided, unconfirmed or restored
	at     revision.Revision // if restored
}

type withheldKind int

const (
	kept withheldKind = iota
	waiting
	decided
	unconfirmed
	restored
	refused
)

// Kept is the state of labels whose machine has not returned.
var Kept WithheldState

// WaitingFor is the state of labels that wait until an incarnation, which has the other labels of
// the record, reports its identity. Without an incarnation the state is [Kept].
func WaitingFor(uid types.UID) WithheldState {
	if uid == "" {
		return Kept
	}
	return WithheldState{kind: waiting, uid: uid}
}

// DecidedFor is the state of labels that an incarnation gets. The write that restores them sets the
// marker. Without a marker the state is [WaitingFor] the incarnation.
func DecidedFor(uid types.UID, marker string) WithheldState {
	if uid == "" || marker == "" {
		return WaitingFor(uid)
	}
	return WithheldState{kind: decided, uid: uid, marker: marker}
}

// Unconfirmed is the state of labels whose incarnation was gone before it was known whether the
// write that sets the marker had restored them. They are kept, unless a state of that incarnation
// with the marker is saved: then it had them. Without an incarnation or a marker the state is
// [Kept].
func Unconfirmed(uid types.UID, marker string) WithheldState {
	if uid == "" || marker == "" {
		return Kept
	}
	return WithheldState{kind: unconfirmed, uid: uid, marker: marker}
}

// RestoredBy is the state of labels that were seen on a Node at a revision, after the write that
// set the marker. They stay withheld until a state of the Node from then on is saved. Without a
// revision the state is [Kept].
func RestoredBy(marker string, at revision.Revision) WithheldState {
	if at.IsZero() {
		return Kept
	}
	return WithheldState{kind: restored, marker: marker, at: at}
}

// RefusedFor is the state of labels that the API server has refused to set on an incarnation. They
// are tried again on the next one. Without an incarnation the state is [Kept].
func RefusedFor(uid types.UID) WithheldState {
	if uid == "" {
		return Kept
	}
	return WithheldState{kind: refused, uid: uid}
}

// IsRefused reports whether the state is [RefusedFor] any incarnation.
func (s WithheldState) IsRefused() bool { return s.kind == refused }

// IsRefusedFor reports whether the state is [RefusedFor] this incarnation.
func (s WithheldState) IsRefusedFor(uid types.UID) bool { return s.kind == refused && s.uid == uid }

// IsDecided reports whether the state is [DecidedFor] any incarnation.
func (s WithheldState) IsDecided() bool { return s.kind == decided }

// IsDecidedFor reports whether the state is [DecidedFor] this incarnation.
func (s WithheldState) IsDecidedFor(uid types.UID) bool { return s.kind == decided && s.uid == uid }

// IsUnconfirmed reports whether the state is [Unconfirmed] with any marker.
func (s WithheldState) IsUnconfirmed() bool { return s.kind == unconfirmed }

// IsUnconfirmedFor reports whether the state is [Unconfirmed] for this incarnation.
func (s WithheldState) IsUnconfirmedFor(uid types.UID) bool {
	return s.kind == unconfirmed && s.uid == uid
}

// IsRestored reports whether the state is [RestoredBy] any write.
func (s WithheldState) IsRestored() bool { return s.kind == restored }

// Awaits returns the incarnation that labels wait for: to report its identity, or to get them. It
// is "" if there is none.
func (s WithheldState) Awaits() types.UID {
	if s.kind == waiting || s.kind == decided {
		return s.uid
	}
	return ""
}

// WaitsFor reports whether labels await this incarnation, see [WithheldState.Awaits].
func (s WithheldState) WaitsFor(uid types.UID) bool { return uid != "" && s.Awaits() == uid }

// Marker returns the marker of the write that restores or has restored the labels, or "" if none
// was decided.
func (s WithheldState) Marker() string { return s.marker }

// RestoredAt returns the revision at which the labels were seen restored, zero if they were not.
func (s WithheldState) RestoredAt() revision.Revision { return s.at }

// setState is the inverse of state.
func (s *storedWithheld) setState(state WithheldState) {
	s.Marker = state.marker
	switch state.kind {
	case kept:
	case waiting, decided:
		s.WaitingFor = state.uid
	case unconfirmed:
		s.GoneUID = state.uid
	case restored:
		s.RestoredAt = state.at.String()
	case refused:
		s.RefusedFor = state.uid
	}
}

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
	case s.WaitingFor != "" && s.Marker == "":
		return WaitingFor(s.WaitingFor), nil
	case s.WaitingFor != "":
		return DecidedFor(s.WaitingFor, s.Marker), nil
	case s.GoneUID != "":
		return Unconfirmed(s.GoneUID, s.Marker), nil
	}
	return Kept, nil
}
