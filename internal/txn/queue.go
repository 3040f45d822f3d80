package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeHashIndex is the name of the cache index, made with [IndexNodeHash], that [Queue.Pending] asks.
const NodeHashIndex = "nodekeeper.dev/node-hash"

// ErrNameTaken says that another transaction, or what is no transaction, has the name
// of the one to be put. It gets stored once that name is free.
var ErrNameTaken = errors.New("another transaction has this name")

// ErrTooLarge says that the labels do not fit a ConfigMap: the transaction can never be stored.
var ErrTooLarge = fmt.Errorf("the labels do not fit a ConfigMap: their values may have %d bytes, and the whole object about 1.5 MiB", MaxDataBytes)

// Queue holds the transactions of every node. It is safe for concurrent use.
type Queue struct {
	// Reader answers Pending and may be a cache. It needs [NodeHashIndex]. A queue that is only put to needs none.
	Reader client.Reader
	// Client reads and writes the API server itself.
	Client client.Client
	// Namespace is the transaction namespace.
	Namespace string
}

// Queued is a transaction as it stands in the queue.
type Queued struct {
	Transaction
	// ObjectUID is the metadata.uid of its ConfigMap.
	ObjectUID types.UID
}

// IndexNodeHash returns the node hash in the name of a transaction's ConfigMap, nothing for any other name.
func IndexNodeHash(obj client.Object) []string {
	if nodeHash, _, ok := SplitName(obj.GetName()); ok {
		return []string{nodeHash}
	}
	return nil
}

// Pending returns the transactions of one node, oldest first. ConfigMaps that
// are no readable transactions are left out: they block nobody.
func (q *Queue) Pending(ctx context.Context, nodeHash string) ([]Queued, error) {
	var list corev1.ConfigMapList
	if err := q.Reader.List(ctx, &list, client.InNamespace(q.Namespace), client.MatchingFields{NodeHashIndex: nodeHash}); err != nil {
		return nil, fmt.Errorf("listing the transactions of node hash %s: %w", nodeHash, err)
	}
	pending := make([]Queued, 0, len(list.Items))
	for i := range list.Items {
		cm := &list.Items[i]
		t, err := Parse(cm)
		if err != nil {
			continue // whoever watches the namespace marks it
		}
		pending = append(pending, Queued{Transaction: t, ObjectUID: cm.UID})
	}
	slices.SortFunc(pending, func(a, b Queued) int { return Compare(a.Transaction, b.Transaction) })
	return pending, nil
}

// Put stores a transaction. It is idempotent by its name: nil means that this
// event is in the queue or has been, whoever put it there. [ErrNameTaken] and
// any error other than [ErrTooLarge] are to be tried again.
func (q *Queue) Put(ctx context.Context, t Transaction) error {
	cm := t.ConfigMap(q.Namespace)
	if DataBytes(cm.Data) > MaxDataBytes {
		return ErrTooLarge
	}
	err := q.Client.Create(ctx, cm)
	switch {
	case apierrors.IsAlreadyExists(err):
		return q.confirm(ctx, t)
	case isTooLarge(err):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("storing transaction %s of node %q: %w", t.Name(), t.Node, err)
	}
	return nil
}

// confirm returns nil if the ConfigMap that has the name of t records the same event.
func (q *Queue) confirm(ctx context.Context, t Transaction) error {
	var cm corev1.ConfigMap
	if err := q.Client.Get(ctx, types.NamespacedName{Namespace: q.Namespace, Name: t.Name()}, &cm); err != nil {
		// NotFound too: what had the name has just been applied, and whether that was t is
		// unknown. To put it once more is right in either case.
		return fmt.Errorf("reading transaction %s of node %q: %w", t.Name(), t.Node, err)
	}
	existing, err := Parse(&cm)
	if err != nil || !existing.IsSameEvent(t) {
		return fmt.Errorf("storing transaction %s of node %q: %w", t.Name(), t.Node, ErrNameTaken)
	}
	return nil
}

// Has says whether a transaction is in the queue, as the API server and not the cache knows it.
func (q *Queue) Has(ctx context.Context, t Queued) (bool, error) {
	var cm corev1.ConfigMap
	err := q.Client.Get(ctx, types.NamespacedName{Namespace: q.Namespace, Name: t.Name()}, &cm)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading transaction %s of node %q: %w", t.Name(), t.Node, err)
	}
	return cm.UID == t.ObjectUID, nil
}

// ConfirmEvent returns an error unless a fresh read of the node says that the cluster can have had the event that t records, see
// [Happened]. If it cannot, lost is told the proof that the history of the cluster went back, and says what the error is.
func (q *Queue) ConfirmEvent(ctx context.Context, t Transaction, lost func(proof string) error) error {
	// A list and not a get: it tells the resourceVersion now even if the node is gone.
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := q.Client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: t.Node}); err != nil {
		return fmt.Errorf("confirming an event of node %q: %w", t.Node, err)
	}
	var live *metav1.PartialObjectMetadata
	if len(list.Items) > 0 {
		live = &list.Items[0]
	}
	if Happened(t, live, list.ResourceVersion) {
		return nil
	}
	return lost(fmt.Sprintf("node %q was seen %s at resourceVersion %s and was not", t.Node, t.Type, t.ResourceVersion))
}

// Remove takes a transaction out of the queue. It is deleted by its uid, so that another
// one that has taken its name since stays. One that is gone already is no error.
func (q *Queue) Remove(ctx context.Context, t Queued) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: t.Name()}}
	err := q.Client.Delete(ctx, cm, client.Preconditions{UID: &t.ObjectUID})
	// NotFound: another processor has removed it, or the answer to our own delete was lost.
	// Conflict: the name belongs to another object now, so this one is gone too.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing transaction %s of node %q: %w", t.Name(), t.Node, err)
	}
	return nil
}

// isTooLarge says whether the API server or etcd refused an object for its size: the API
// server's limit of a request body (3 MiB: 413 RequestEntityTooLarge), the limit of a ConfigMap's
// values (422 Invalid), or etcd's --max-request-bytes (1.5 MiB by default) and the message size
// of the API server's own etcd client (2 MiB). The last two come as a 500 with no reason, only a text;
// before that the API server has tried it once more without the managedFields.
func isTooLarge(err error) bool {
	if err == nil {
		return false
	}
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.HasStatusCause(err, metav1.CauseType("FieldValueTooLong")) ||
		strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}
