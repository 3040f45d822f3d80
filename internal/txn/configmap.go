package txn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
)

// Labels and annotations of a transaction's ConfigMap.
const (
	// keyPrefix is the prefix of all of nodekeeper's labels and annotations.
	keyPrefix = "nodekeeper.dev/"

	// TypeLabel repeats the type, for kubectl get -L and selectors.
	TypeLabel = "nodekeeper.dev/type"
	// NodeHashLabel holds the first 16 characters of the node hash, because a label value cannot
	// hold all 64.
	NodeHashLabel = "nodekeeper.dev/node-hash"

	// MalformedLabel marks a quarantined ConfigMap, which is not a readable transaction. kubectl
	// get cm -l nodekeeper.dev/malformed lists them.
	MalformedLabel = "nodekeeper.dev/malformed"
	// MalformedNameAnnotation is the name that a quarantined ConfigMap had. No transaction
	// has its own name.
	MalformedNameAnnotation = "nodekeeper.dev/malformed-name"
	// AtOnceAnnotation marks an urgent transaction.
	AtOnceAnnotation = "nodekeeper.dev/at-once"

	nodeAnnotation         = "nodekeeper.dev/node"
	uidAnnotation          = "nodekeeper.dev/uid"
	markerAnnotation       = "nodekeeper.dev/marker"
	observedAtAnnotation   = "nodekeeper.dev/observed-at"
	restoredAnnotation     = "nodekeeper.dev/restored"
	foundsRecordAnnotation = "nodekeeper.dev/founds-record"

	machineAnnotation   = "nodekeeper.dev/machine-labels"
	unclearAnnotation   = "nodekeeper.dev/unclear-labels"
	withdrawnAnnotation = "nodekeeper.dev/withdrawn-labels"
	overruledAnnotation = "nodekeeper.dev/overruled-labels"
	editedAnnotation    = "nodekeeper.dev/edited-labels"
	ownersAnnotation    = "nodekeeper.dev/label-owners"

	shortHashLength = 16
)

// ErrMalformed means that a ConfigMap is not a readable transaction.
var ErrMalformed = errors.New("not a readable transaction")

// ConfigMap returns the transaction as stored in the namespace.
func (t Transaction) ConfigMap(namespace string) *corev1.ConfigMap {
	data := labels.Encode(t.Labels)
	data[labels.TypeKey] = string(t.Type)
	annotations := map[string]string{
		nodeAnnotation:       t.Node,
		uidAnnotation:        string(t.UID),
		observedAtAnnotation: t.ObservedAt.UTC().Format(time.RFC3339Nano),
		machineAnnotation:    string(t.Machine), // present even if it is empty, see parseKeys
	}
	if t.Marker != "" {
		annotations[markerAnnotation] = t.Marker
	}
	for annotation, text := range map[string]string{
		unclearAnnotation: string(t.Unclear), withdrawnAnnotation: string(t.Withdrawn), overruledAnnotation: string(t.Overruled), editedAnnotation: string(t.Edited),
		ownersAnnotation: string(t.Owners),
	} {
		if text != "" {
			annotations[annotation] = text
		}
	}
	for annotation, isSet := range map[string]bool{
		restoredAnnotation: t.Restored, foundsRecordAnnotation: t.FoundsRecord, AtOnceAnnotation: t.AtOnce,
	} {
		if isSet {
			annotations[annotation] = "true"
		}
	}
	transactionLabels := NodeLabels(t.Node)
	transactionLabels[TypeLabel] = string(t.Type)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:        t.Name(),
			Namespace:   namespace,
			Labels:      transactionLabels,
			Annotations: annotations,
		},
		Data:      data,
		Immutable: new(true),
	}
}

// NodeLabels returns labels that select the transactions of a node. They may also select another
// node's, because the hash is truncated.
func NodeLabels(node string) map[string]string {
	return map[string]string{NodeHashLabel: NodeHash(node)[:shortHashLength]}
}

// Parse returns the transaction in a ConfigMap, or an error that wraps [ErrMalformed] and names the
// problem. For every valid Transaction t, Parse(t.ConfigMap(ns)) returns t.
func Parse(cm *corev1.ConfigMap) (Transaction, error) {
	t := Transaction{
		Node:         cm.Annotations[nodeAnnotation],
		UID:          types.UID(cm.Annotations[uidAnnotation]),
		Marker:       cm.Annotations[markerAnnotation],
		Restored:     cm.Annotations[restoredAnnotation] == "true",
		FoundsRecord: cm.Annotations[foundsRecordAnnotation] == "true",
		AtOnce:       cm.Annotations[AtOnceAnnotation] == "true",
		Owners:       fieldmanagers.Owners(cm.Annotations[ownersAnnotation]),
	}
	nodeHash, rev, ok := SplitName(cm.Name)
	switch {
	case !ok:
		return Transaction{}, malformed("its name is not <sha256 of a node name>.<resourceVersion>")
	case t.Node == "":
		return Transaction{}, malformed("annotation %s is missing", nodeAnnotation)
	case len(apivalidation.NameIsDNSSubdomain(t.Node, false)) > 0:
		return Transaction{}, malformed("annotation %s is %q, not a node name", nodeAnnotation, t.Node)
	case nodeHash != NodeHash(t.Node):
		return Transaction{}, malformed("its name does not begin with the SHA-256 of node %q", t.Node)
	case t.UID == "":
		return Transaction{}, malformed("annotation %s is missing", uidAnnotation)
	}
	t.Revision = rev
	observedAt, err := time.Parse(time.RFC3339Nano, cm.Annotations[observedAtAnnotation])
	if err == nil {
		// In UTC the year may be out of range for RFC 3339.
		observedAt = observedAt.UTC()
		_, err = observedAt.MarshalText()
	}
	if err != nil {
		return Transaction{}, malformed("annotation %s is not a time: %v", observedAtAnnotation, err)
	}
	t.ObservedAt = observedAt
	return t.withData(cm)
}

// parseKeys parses the ownership of the labels. If it is missing, because the watcher does not
// support it, all labels are unclear.
func (t *Transaction) parseKeys(cm *corev1.ConfigMap) (err error) {
	if _, isPresent := cm.Annotations[machineAnnotation]; !isPresent {
		t.Unclear = labels.KeysOf(maps.Keys(t.Labels))
		return nil
	}
	for key, to := range map[string]*labels.Keys{
		machineAnnotation: &t.Machine, unclearAnnotation: &t.Unclear, withdrawnAnnotation: &t.Withdrawn, overruledAnnotation: &t.Overruled, editedAnnotation: &t.Edited,
	} {
		if *to, err = labels.ParseKeys(cm.Annotations[key]); err != nil {
			return malformed("annotation %s: %v", key, err)
		}
	}
	return nil
}

// NodeOf returns the node to whose transactions a ConfigMap claims to belong, or "" if it claims
// none. It is cheaper than [Parse], and the ConfigMap may still be malformed.
func NodeOf(cm *corev1.ConfigMap) string { return cm.Annotations[nodeAnnotation] }

// Ours reports whether a ConfigMap in the transaction namespace is, or was meant to be, a
// transaction, by its name or metadata. Other products create ConfigMaps in every namespace, which
// must not be touched or counted.
func Ours(cm *corev1.ConfigMap) bool {
	if _, _, ok := SplitName(cm.Name); ok {
		return true
	}
	own := func(key string) bool { return strings.HasPrefix(key, keyPrefix) }
	return slices.ContainsFunc(slices.Collect(maps.Keys(cm.Labels)), own) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(cm.Annotations)), own)
}

// withData returns t with the type and the labels from the ConfigMap's data, and their ownership.
func (t Transaction) withData(cm *corev1.ConfigMap) (Transaction, error) {
	switch t.Type = Type(cm.Data[labels.TypeKey]); t.Type {
	case Added, Updated, Deleted:
	default:
		return Transaction{}, malformed("data.%s is %q, not added, updated or deleted", labels.TypeKey, t.Type)
	}
	if len(cm.BinaryData) > 0 {
		return Transaction{}, malformed("it has binaryData")
	}
	t.Labels = make(map[string]string, len(cm.Data))
	for dataKey, dataValue := range cm.Data {
		if dataKey == labels.TypeKey {
			continue
		}
		key, value, err := labels.DecodeEntry(dataKey, dataValue)
		if err != nil {
			return Transaction{}, malformed("%v", err)
		}
		t.Labels[key] = value
	}
	if err := Validate(t.Labels); err != nil {
		return Transaction{}, malformed("%v", err)
	}
	if err := t.parseKeys(cm); err != nil {
		return Transaction{}, err
	}
	return t, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}
