package record

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

const (
	// keyPrefix is the prefix of all of nodekeeper's annotations.
	keyPrefix = "nodekeeper.dev/"

	// ManagedByLabel is the label of every record, with the value [ManagedBy].
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of [ManagedByLabel].
	ManagedBy = "nodekeeper"

	// AwaySinceAnnotation is the time at which a processor with a retention time first found the
	// node missing. Every write of the record removes it.
	AwaySinceAnnotation = "nodekeeper.dev/away-since"

	// ForgottenAnnotation is on the floor that replaces a removed record: its value is the
	// revision. A floor has no data, so that a release without floors finds it unreadable and
	// leaves the node alone instead of restoring an empty set of labels.
	ForgottenAnnotation = "nodekeeper.dev/forgotten"

	sourceUIDAnnotation   = "nodekeeper.dev/source-uid"
	restoredUIDAnnotation = "nodekeeper.dev/restored-uid"
	restoredRVAnnotation  = "nodekeeper.dev/restored-rv"
	endedAnnotation       = "nodekeeper.dev/ended"
	savedAtAnnotation     = "nodekeeper.dev/saved-at"
	unclearAnnotation     = "nodekeeper.dev/unclear-labels"
	overruledAnnotation   = "nodekeeper.dev/overruled-labels"
	machineAnnotation     = "nodekeeper.dev/machine-labels"
	machineRVAnnotation   = "nodekeeper.dev/machine-labels-rv"
	ownersAnnotation      = "nodekeeper.dev/label-owners"

	// ended is the value of endedAnnotation if the time is unknown.
	ended = "true"
)

// RootCAName is the name of the ConfigMap that kube-controller-manager creates in every namespace
// (RootCACertConfigMapName in k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher).
// It is never a record, and a node of that name cannot have one.
const RootCAName = "kube-root-ca.crt"

var (
	// ErrUnreadable means that a ConfigMap is not a readable record.
	ErrUnreadable = errors.New("not a readable record")
	// ErrForeign means that the ConfigMap under the name of a node belongs to another program, see
	// [OwnerOf]. It wraps [ErrUnreadable].
	ErrForeign = fmt.Errorf("%w: the ConfigMap belongs to", ErrUnreadable)
)

// Record is the saved labels of one node.
type Record struct {
	// Node is the node's name.
	Node string
	// Labels are the saved labels, without the marker.
	Labels map[string]string
	// Machine are the keys that only agents of the machine that the record follows had set.
	Machine labels.Keys
	// Unclear are the keys whose setter is unknown. In records of a release without ownership these
	// are all keys, unless the record has no source: users set all of them then.
	Unclear labels.Keys
	// Overruled are keys that agents of this machine or a former one had set and that a user has
	// changed or removed since.
	Overruled labels.Keys
	// Owners are the field managers of the labels that are not the machine's, withheld ones included.
	Owners fieldmanagers.Owners
	// Identity is the machine of those Labels that belong to one: the machine of the incarnation
	// that the record follows, or of the next one, onto which they are about to be restored. It is
	// set only if there are any.
	Identity Identity
	// Withheld are labels of other machines, which were not restored onto that one, the newest
	// first. No key is in two sets, except in one that [Withheld.IsLeft]. Only a refused key may also be
	// among Labels, with the value that the Node has instead.
	Withheld []Withheld
	// Revision is the Node resourceVersion at which the labels were captured.
	Revision revision.Revision
	// Source is the incarnation that the labels came from; "" if unknown (a record created
	// manually).
	Source types.UID
	// Restored is the last restore, or when the source was last seen with these labels. It is zero
	// if neither has happened since they were saved.
	Restored Restoration
	// Ended reports that the record includes the end of the incarnation that it follows, so no
	// later state can come. Some ends are never recorded, and older releases did not store them.
	Ended bool
	// EndedAt is when that was, by the clock of the program that saw it. It decides nothing, and is
	// zero if it is unknown.
	EndedAt time.Time
	// SavedAt is when the record was last written, which decides nothing. Of a floor it is the time
	// of the removal: a processor with retention removes the floor a day later.
	SavedAt time.Time
	// Floor reports that the record was removed: no labels are saved, and no event up to Revision
	// counts. A floor has only Node, Revision and SavedAt, the time of the removal.
	Floor bool
}

// Restoration is one completed restore, or a later observation of an incarnation that has its
// labels.
type Restoration struct {
	// UID is the incarnation that the labels were restored onto.
	UID types.UID
	// Revision is the revision of its Node after the restore.
	Revision revision.Revision
}

// Equal reports whether two records are stored identically, apart from EndedAt and SavedAt.
func (r Record) Equal(other Record) bool {
	return r.Node == other.Node && r.Revision == other.Revision && r.Source == other.Source &&
		r.Floor == other.Floor && r.Ended == other.Ended &&
		r.Restored == other.Restored && maps.Equal(r.Labels, other.Labels) &&
		r.Machine == other.Machine && r.Unclear == other.Unclear && r.Overruled == other.Overruled && r.Owners == other.Owners && r.equalRestricted(other)
}

// Parse returns the record in a ConfigMap, or an error that wraps [ErrUnreadable] and names the
// problem. Parse never guesses: labels that cannot be restored as they are, for example after a
// manual edit, are an error.
func Parse(cm *corev1.ConfigMap) (*Record, error) {
	if owner := OwnerOf(cm); owner != Nodekeeper {
		return nil, fmt.Errorf("%w %s", ErrForeign, owner)
	}
	r := &Record{Node: cm.Name, Source: types.UID(cm.Annotations[sourceUIDAnnotation])}
	r.Ended, r.EndedAt = parseEnded(cm.Annotations[endedAnnotation])
	r.Owners = fieldmanagers.Owners(cm.Annotations[ownersAnnotation])
	var err error
	if r.SavedAt, err = parseSavedAt(cm); err != nil {
		return nil, err
	}
	if len(cm.BinaryData) > 0 {
		return nil, unreadable("it has binaryData")
	}
	if forgotten, ok := cm.Annotations[ForgottenAnnotation]; ok {
		return parseFloor(cm, forgotten, r.SavedAt)
	}
	if r.Revision, err = revision.Parse(cm.Data[labels.Marker]); err != nil {
		return nil, unreadable("data.%s is %q, not a resourceVersion", labels.Marker, cm.Data[labels.Marker])
	}
	uid, restoredAt := cm.Annotations[restoredUIDAnnotation], cm.Annotations[restoredRVAnnotation]
	if uid != "" || restoredAt != "" {
		rev, err := revision.Parse(restoredAt)
		if uid == "" || err != nil {
			return nil, unreadable("annotations %s and %s must be a uid and a resourceVersion, or both absent", restoredUIDAnnotation, restoredRVAnnotation)
		}
		r.Restored = Restoration{UID: types.UID(uid), Revision: rev}
	}
	if r.Labels, err = parseLabels(cm); err != nil {
		return nil, err
	}
	if err := r.parseKeys(cm); err != nil {
		return nil, err
	}
	r.Identity = parseIdentity(cm, r.seenAt())
	if r.Withheld, err = parseWithheld(cm, labels.KeysOf(maps.Keys(r.Labels)).Without(r.Machine).Without(r.Unclear)); err != nil {
		return nil, err
	}
	return r, nil
}

// seenAt returns the revision of the last state of an incarnation in the record.
func (r *Record) seenAt() revision.Revision {
	if r.Restored.UID != "" {
		return r.Restored.Revision
	}
	return r.Revision
}

// parseKeys parses the ownership of the labels. Releases without ownership leave it unchanged when
// they replace the labels or note a restore; it is then invalid.
func (r *Record) parseKeys(cm *corev1.ConfigMap) (err error) {
	switch {
	case cm.Annotations[machineRVAnnotation] == r.seenAt().String():
	case r.Source == "":
		return nil // created manually
	default:
		r.Unclear = labels.KeysOf(maps.Keys(r.Labels))
		return nil
	}
	for _, keys := range []struct {
		annotation string
		to         *labels.Keys
	}{{machineAnnotation, &r.Machine}, {unclearAnnotation, &r.Unclear}, {overruledAnnotation, &r.Overruled}} {
		if *keys.to, err = labels.ParseKeys(cm.Annotations[keys.annotation]); err != nil {
			return unreadable("annotation %s: %v", keys.annotation, err)
		}
	}
	return nil
}

// parseFloor returns the floor in a ConfigMap.
func parseFloor(cm *corev1.ConfigMap, forgotten string, at time.Time) (*Record, error) {
	rev, err := revision.Parse(forgotten)
	if err != nil {
		return nil, unreadable("annotation %s is %q, not a resourceVersion", ForgottenAnnotation, forgotten)
	}
	for key, value := range cm.Data {
		if key != labels.Marker || value != "" {
			return nil, unreadable("it has labels although annotation %s excludes them: remove either", ForgottenAnnotation)
		}
	}
	return &Record{Node: cm.Name, Revision: rev, SavedAt: at, Floor: true}, nil
}

// parseEnded returns whether and when the last incarnation has ended. A text that is neither a time
// nor true counts as missing: an end is not always recorded.
func parseEnded(text string) (isEnded bool, at time.Time) {
	at, err := parseTime(text)
	return err == nil || text == ended, at
}

// parseSavedAt returns when the record was saved, or zero if that is not stored.
func parseSavedAt(cm *corev1.ConfigMap) (time.Time, error) {
	text, ok := cm.Annotations[savedAtAnnotation]
	if !ok {
		return time.Time{}, nil
	}
	savedAt, err := parseTime(text)
	if err != nil {
		return time.Time{}, unreadable("annotation %s is not a time: %v", savedAtAnnotation, err)
	}
	return savedAt, nil
}

// parseTime is the inverse of [timeText] for times that are not zero.
func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, err
	}
	at = at.UTC()
	if _, err := at.MarshalText(); err != nil { // the year may be out of range for RFC 3339 in UTC
		return time.Time{}, err
	}
	return at, nil
}

func parseLabels(cm *corev1.ConfigMap) (map[string]string, error) {
	data := maps.Clone(cm.Data)
	delete(data, labels.Marker)
	decoded, err := labels.Decode(data)
	if err != nil {
		return nil, unreadable("%v", err)
	}
	if err := txn.Validate(decoded); err != nil {
		return nil, unreadable("%v", err)
	}
	return decoded, nil
}

// Ours reports whether a ConfigMap in the metadata namespace is, or was meant to be, a record, by
// its metadata or because it has a revision. Other products create ConfigMaps in every namespace,
// which must not be touched or counted.
func Ours(cm *corev1.ConfigMap) bool {
	return cm.Name != RootCAName && OwnerOf(cm) == Nodekeeper
}

// hasOwnMetadata reports whether nodekeeper has written a ConfigMap.
func hasOwnMetadata(cm *corev1.ConfigMap) bool {
	if cm.Labels[ManagedByLabel] == ManagedBy {
		return true
	}
	for key := range cm.Annotations {
		if strings.HasPrefix(key, keyPrefix) {
			return true
		}
	}
	return false
}

// ConfigMap returns the record as first stored in the namespace.
func (r Record) ConfigMap(namespace string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.Node}}
	r.Write(cm)
	return cm
}

// Write stores the record in cm. It keeps the resourceVersion, and all labels and annotations that
// are not nodekeeper's.
func (r Record) Write(cm *corev1.ConfigMap) {
	cm.Data, cm.BinaryData = nil, nil
	forgotten := r.Revision.String()
	if !r.Floor {
		cm.Data, forgotten = labels.Encode(r.Labels), ""
		cm.Data[labels.Marker] = r.Revision.String()
	}
	if cm.Labels == nil {
		cm.Labels = map[string]string{}
	}
	cm.Labels[ManagedByLabel] = ManagedBy
	if cm.Annotations == nil {
		cm.Annotations = map[string]string{}
	}
	delete(cm.Annotations, AwaySinceAnnotation)
	setOrDelete(cm.Annotations, ForgottenAnnotation, forgotten)
	end := ""
	if r.Ended {
		end = cmp.Or(timeText(r.EndedAt), ended)
	}
	setOrDelete(cm.Annotations, endedAnnotation, end)
	machineRV := ""
	if !r.Floor {
		machineRV = r.seenAt().String()
	}
	setOrDelete(cm.Annotations, machineRVAnnotation, machineRV)
	setOrDelete(cm.Annotations, machineAnnotation, string(r.Machine))
	setOrDelete(cm.Annotations, unclearAnnotation, string(r.Unclear))
	setOrDelete(cm.Annotations, overruledAnnotation, string(r.Overruled))
	setOrDelete(cm.Annotations, ownersAnnotation, string(r.Owners))
	r.writeRestricted(cm.Annotations)
	setOrDelete(cm.Annotations, sourceUIDAnnotation, string(r.Source))
	setOrDelete(cm.Annotations, restoredUIDAnnotation, string(r.Restored.UID))
	setOrDelete(cm.Annotations, restoredRVAnnotation, r.Restored.Revision.String())
	setOrDelete(cm.Annotations, savedAtAnnotation, timeText(r.SavedAt))
}

// timeText returns a time as it is stored, "" if it is zero.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func setOrDelete(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnreadable}, args...)...)
}
