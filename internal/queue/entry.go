package queue

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// Entry is the part of a ConfigMap in the transaction namespace that an [Index] keeps.
type Entry struct {
	metav1.ObjectMeta // name, namespace, uid, resourceVersion and creation only

	// Transaction is nil if the ConfigMap is not a readable transaction.
	Transaction *txn.Transaction
	// Malformed is the reason why the ConfigMap is not a readable transaction. It is nil if it is
	// one, or if the ConfigMap is foreign.
	Malformed error
	// Quarantined reports whether the ConfigMap has the label [txn.MalformedLabel] and a name that no
	// transaction has. A former release has marked malformed transactions and kept their names.
	Quarantined bool
}

// entryOf returns the entry of an object delivered by a list or a watch: a ConfigMap, or the entry
// that [Index.Transformer] has made of it.
func entryOf(obj any) *Entry {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj.(*Entry)
	}
	e := &Entry{
		ObjectMeta: metav1.ObjectMeta{
			Name: cm.Name, Namespace: cm.Namespace, UID: cm.UID, ResourceVersion: cm.ResourceVersion,
			CreationTimestamp: cm.CreationTimestamp,
		},
	}
	if _, _, ok := txn.SplitName(cm.Name); !ok {
		e.Quarantined = cm.Labels[txn.MalformedLabel] == "true"
	}
	if !txn.Ours(cm) {
		return e
	}
	t, err := txn.Parse(cm)
	if err != nil {
		e.Malformed = err
		return e
	}
	t.Labels = labels.WithSharedKeys(t.Labels)
	e.Transaction = &t
	return e
}

// queued returns the transaction as stored in the queue.
func (e *Entry) queued() Queued {
	return Queued{Transaction: *e.Transaction, ObjectUID: e.UID, Created: e.CreationTimestamp.Time}
}
