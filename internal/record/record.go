package record

import (
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodekeeper.dev/internal/labels"
)

const (
	// ManagedByLabel is the label that says of a record whose it is: [ManagedBy].
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of [ManagedByLabel].
	ManagedBy = "nodekeeper"

	// AwaySinceAnnotation is the time at which a processor with a retention time first
	// found the node missing. Every write of the record takes it away again.
	AwaySinceAnnotation = "nodekeeper.dev/away-since"

	sourceUIDAnnotation   = "nodekeeper.dev/source-uid"
	restoredUIDAnnotation = "nodekeeper.dev/restored-uid"
	restoredRVAnnotation  = "nodekeeper.dev/restored-rv"
	savedAtAnnotation     = "nodekeeper.dev/saved-at"
)

// RootCAName is the name of the ConfigMap that kube-controller-manager keeps in
// every namespace (RootCACertConfigMapName in k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher).
// It is never a record, and a node of that name cannot have one.
const RootCAName = "kube-root-ca.crt"

// ErrUnreadable says that a ConfigMap is no record that can be read.
var ErrUnreadable = errors.New("not a readable record")

// Record is the saved labels of one node.
type Record struct {
	// Node is the node's name.
	Node string
	// Labels are the saved labels, without the marker.
	Labels map[string]string
	// Version is the Node resourceVersion at which the labels were captured.
	Version string
	// Source is the incarnation that the labels came from; "" if unknown (a record made by hand).
	Source types.UID
	// Restored is the last restore, or when the source was last seen with these labels. The zero value: neither since they were saved.
	Restored Restoration
	// SavedAt is when the labels were saved. It decides nothing.
	SavedAt time.Time
}

// Restoration is one completed restore, or one later look at an incarnation that has its labels.
type Restoration struct {
	// UID is the incarnation that the labels were put onto.
	UID types.UID
	// ResourceVersion is that of its Node when it was done.
	ResourceVersion string
}

// Equal says whether two records are stored alike, their SavedAt aside.
func (r Record) Equal(other Record) bool {
	return r.Node == other.Node && r.Version == other.Version && r.Source == other.Source &&
		r.Restored == other.Restored && maps.Equal(r.Labels, other.Labels)
}

// Parse returns the record that a ConfigMap holds, or an error that wraps [ErrUnreadable]
// and says what is wrong with it. Parse never guesses: labels that cannot be
// restored as they stand, after an edit by hand for instance, are an error.
func Parse(cm *corev1.ConfigMap) (*Record, error) {
	r := &Record{
		Node:    cm.Name,
		Version: cm.Data[labels.Marker],
		Source:  types.UID(cm.Annotations[sourceUIDAnnotation]),
		Restored: Restoration{
			UID:             types.UID(cm.Annotations[restoredUIDAnnotation]),
			ResourceVersion: cm.Annotations[restoredRVAnnotation],
		},
	}
	if !wellFormed(r.Version) {
		return nil, unreadable("data.%s is %q, not a resourceVersion", labels.Marker, r.Version)
	}
	if r.Restored != (Restoration{}) && (r.Restored.UID == "" || !wellFormed(r.Restored.ResourceVersion)) {
		return nil, unreadable("annotations %s and %s are to be a uid and a resourceVersion, or both absent", restoredUIDAnnotation, restoredRVAnnotation)
	}
	if text, ok := cm.Annotations[savedAtAnnotation]; ok {
		savedAt, err := time.Parse(time.RFC3339, text)
		if err == nil {
			// In UTC the year can be one that RFC 3339 cannot write.
			savedAt = savedAt.UTC()
			_, err = savedAt.MarshalText()
		}
		if err != nil {
			return nil, unreadable("annotation %s is not a time: %v", savedAtAnnotation, err)
		}
		r.SavedAt = savedAt
	}
	if len(cm.BinaryData) > 0 {
		return nil, unreadable("it has binaryData")
	}
	data := maps.Clone(cm.Data)
	delete(data, labels.Marker)
	decoded, err := labels.Decode(data)
	if err != nil {
		return nil, unreadable("%v", err)
	}
	if errs := metav1validation.ValidateLabels(decoded, field.NewPath("labels")); len(errs) > 0 {
		return nil, unreadable("%v", errs[0])
	}
	r.Labels = decoded
	return r, nil
}

// ConfigMap returns the record as it is stored in the namespace for the first time.
func (r Record) ConfigMap(namespace string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.Node}}
	r.Write(cm)
	return cm
}

// Write makes cm hold the record. Labels and annotations of cm that are not
// nodekeeper's stay, and so does its resourceVersion.
func (r Record) Write(cm *corev1.ConfigMap) {
	cm.Data = labels.Encode(r.Labels)
	cm.Data[labels.Marker] = r.Version
	if cm.Labels == nil {
		cm.Labels = map[string]string{}
	}
	cm.Labels[ManagedByLabel] = ManagedBy
	if cm.Annotations == nil {
		cm.Annotations = map[string]string{}
	}
	delete(cm.Annotations, AwaySinceAnnotation)
	setOrDelete(cm.Annotations, sourceUIDAnnotation, string(r.Source))
	setOrDelete(cm.Annotations, restoredUIDAnnotation, string(r.Restored.UID))
	setOrDelete(cm.Annotations, restoredRVAnnotation, r.Restored.ResourceVersion)
	savedAt := ""
	if !r.SavedAt.IsZero() {
		savedAt = r.SavedAt.UTC().Format(time.RFC3339)
	}
	setOrDelete(cm.Annotations, savedAtAnnotation, savedAt)
}

func setOrDelete(annotations map[string]string, key, value string) {
	if value == "" {
		delete(annotations, key)
		return
	}
	annotations[key] = value
}

func wellFormed(rv string) bool {
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnreadable}, args...)...)
}
