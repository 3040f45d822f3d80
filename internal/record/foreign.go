package record

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// Owner is the program that a ConfigMap in the metadata namespace belongs to.
type Owner string

// The owners.
const (
	// Nodekeeper has written the ConfigMap, or a user has written it for nodekeeper.
	Nodekeeper Owner = "nodekeeper"
	// KubeStateRS is a program that stores the labels of nodes in the same namespaces and under the
	// same names: https://github.com/xanderdunn/kube-state-rs.
	KubeStateRS Owner = "kube-state-rs"
	// Another is any other program.
	Another Owner = "another program"
)

// The data keys of kube-state-rs that are not labels, in its releases.
const (
	rsNode         = "node_name"
	rsType         = "transaction_type"
	rsStoredAt     = "last_store_resource_version"
	rsSeenAt       = "resource_version"
	rsLabelVersion = "label_version"
)

// rsSlash decodes the keys of kube-state-rs: its first releases had a shorter token.
var rsSlash = strings.NewReplacer("---SLASH---", "/", "-SLASH-", "/")

// OwnerOf returns the owner of a ConfigMap. One with a revision but without metadata of nodekeeper
// may be a record that a user has created, or one of kube-state-rs, which has further keys.
func OwnerOf(cm *corev1.ConfigMap) Owner {
	_, hasRevision := cm.Data[labels.Marker]
	switch {
	case hasOwnMetadata(cm):
		return Nodekeeper
	case isKubeStateRS(cm):
		return KubeStateRS
	case hasRevision && cm.Name != RootCAName:
		return Nodekeeper
	}
	return Another
}

func isKubeStateRS(cm *corev1.ConfigMap) bool {
	for _, key := range []string{rsType, rsStoredAt, rsLabelVersion} {
		if _, found := cm.Data[key]; found {
			return true
		}
	}
	return cm.Name != "" && cm.Data[rsNode] == cm.Name
}

// KubeStateRSLabels are the labels of a node as kube-state-rs has stored them.
type KubeStateRSLabels struct {
	Node   string
	Labels map[string]string
	// Revision is the resourceVersion of the Node that had them, zero if it is not known.
	Revision revision.Revision
	// Version counts the changes of a record, in some releases. In a transaction it is that of the
	// labels that the node had got back, and zero if it had got none.
	Version uint64
}

// After reports whether these labels replace the others of the node, as they do in kube-state-rs.
func (s KubeStateRSLabels) After(other KubeStateRSLabels) bool {
	if s.Version != other.Version {
		return s.Version > other.Version
	}
	return s.Revision.After(other.Revision)
}

// IsKubeStateRSTransaction reports whether a ConfigMap in the transaction namespace is a
// transaction of kube-state-rs, and whether it is the end of a node, which has labels.
func IsKubeStateRSTransaction(cm *corev1.ConfigMap) (isTheirs, isEnd bool) {
	typ := txn.Type(cmp.Or(cm.Data[rsType], cm.Data[labels.TypeKey]))
	isTheirs = cm.Data[rsNode] != "" && txn.NodeOf(cm) == "" && (typ == txn.Added || typ == txn.Deleted)
	return isTheirs, isTheirs && typ == txn.Deleted
}

// ParseKubeStateRS returns the labels in a record of kube-state-rs, or in one of its transactions.
func ParseKubeStateRS(cm *corev1.ConfigMap) (KubeStateRSLabels, error) {
	stored := KubeStateRSLabels{Node: cmp.Or(cm.Data[rsNode], cm.Name), Labels: map[string]string{}}
	for key, value := range cm.Data {
		switch key {
		case labels.Marker, rsStoredAt, rsSeenAt:
			stored.Revision = revision.Max(stored.Revision, revision.Of(value))
			continue
		case rsLabelVersion:
			stored.Version, _ = strconv.ParseUint(value, 10, 64) // zero if it is not a number
			continue
		case rsNode, rsType:
			continue
		case labels.TypeKey:
			if value == string(txn.Added) || value == string(txn.Deleted) {
				continue
			}
		}
		stored.Labels[rsSlash.Replace(key)] = value
	}
	if err := txn.Validate(stored.Labels); err != nil {
		return KubeStateRSLabels{}, fmt.Errorf("the labels that %s has stored: %w", KubeStateRS, err)
	}
	return stored, nil
}
