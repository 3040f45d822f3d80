package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/txn"
)

// ErrNameTaken means that another transaction or a foreign object has the name of the one to store.
// Retry until the name is free.
var ErrNameTaken = errors.New("another transaction has this name")

// ErrNameFreed means that a transaction or a foreign object had the name of the one to store, and
// was removed before the two could be compared.
var ErrNameFreed = errors.New("the object with this name has just been removed")

// IsNameConflict reports whether a transaction was not stored because its name is or was in use. The
// API server works.
func IsNameConflict(err error) bool {
	return errors.Is(err, ErrNameTaken) || errors.Is(err, ErrNameFreed)
}

// ErrTooLarge means that the labels do not fit into a ConfigMap, so the transaction can never be
// stored.
var ErrTooLarge = fmt.Errorf("the labels do not fit into a ConfigMap: their values are limited to %d bytes, and the whole object to about 1.5 MiB", txn.MaxDataBytes)

// Queue reads and writes transactions in the API server. It is safe for concurrent use.
type Queue struct {
	Client client.Client
	// Namespace is the transaction namespace.
	Namespace string
}

// Queued is a transaction as stored in the queue.
type Queued struct {
	txn.Transaction
	// ObjectUID is the metadata.uid of its ConfigMap.
	ObjectUID types.UID
	// Created is when it was stored, by the clock of the API server, truncated to seconds.
	Created time.Time
	// Seen is when a list or a watch delivered it to this process. It is zero for a live read.
	Seen time.Time
}

// Parse returns the transaction in a ConfigMap of the transaction namespace, or an error that wraps
// [txn.ErrMalformed].
func Parse(cm *corev1.ConfigMap) (Queued, error) {
	t, err := txn.Parse(cm)
	if err != nil {
		return Queued{}, err
	}
	return Queued{Transaction: t, ObjectUID: cm.UID, Created: cm.CreationTimestamp.Time}, nil
}

// EarlierFirst moves the transactions of an earlier history to the front of a node's pending ones,
// and marks them, see [txn.Transaction.Ahead].
func EarlierFirst(pending []Queued, isEarlier func(Queued) bool) []Queued {
	if !slices.ContainsFunc(pending, isEarlier) {
		return pending
	}
	var earlier, since []Queued
	for _, t := range pending {
		if t.Ahead = isEarlier(t); t.Ahead {
			earlier = append(earlier, t)
		} else {
			since = append(since, t)
		}
	}
	return append(earlier, since...)
}

// Of returns the transactions of one node, oldest first, by a live read. It skips malformed
// transactions, because they do not block others.
func (q *Queue) Of(ctx context.Context, node string) ([]Queued, error) {
	var list corev1.ConfigMapList
	err := q.Client.List(ctx, &list, client.InNamespace(q.Namespace), client.MatchingLabels(txn.NodeLabels(node)))
	if err != nil {
		return nil, fmt.Errorf("listing the transactions of node %q: %w", node, err)
	}
	var all []Queued
	for i := range list.Items {
		if t, err := Parse(&list.Items[i]); err == nil && t.Node == node { // the hash of another node may begin alike
			all = append(all, t)
		}
	}
	slices.SortFunc(all, byRevision)
	return all, nil
}

// Empty reports, by a live read, whether the queue of a node is empty. Malformed transactions count
// as well.
func (q *Queue) Empty(ctx context.Context, node string) (bool, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
	err := q.Client.List(ctx, list, client.InNamespace(q.Namespace), client.MatchingLabels(txn.NodeLabels(node)))
	if err != nil {
		return false, fmt.Errorf("listing the transactions of node %q: %w", node, err)
	}
	return len(list.Items) == 0, nil
}

// Expedite marks a transaction in the queue as urgent, so that it is applied without delay. If it
// does not exist, it has been applied, and Expedite returns nil.
func (q *Queue) Expedite(ctx context.Context, t Queued) error {
	if t.AtOnce {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": t.ObjectUID, "annotations": map[string]string{txn.AtOnceAnnotation: "true"},
	}})
	if err != nil {
		return fmt.Errorf("encoding the patch of transaction %s: %w", t.Name(), err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: t.Name()}}
	err = q.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, body))
	// NotFound: it is applied. Conflict: another object has the name now, so this one is applied,
	// too.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("marking transaction %s of node %q as urgent: %w", t.Name(), t.Node, err)
	}
	return nil
}

// Each calls do with every ConfigMap of the transaction namespace that is ours, readable or not, by
// a live read in pages, and stops at the first error.
func (q *Queue) Each(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	newList := func() client.ObjectList { return &corev1.ConfigMapList{} }
	err := pages.Each(ctx, q.Client, newList, q.Namespace, func(cm *corev1.ConfigMap) error {
		if !txn.Ours(cm) {
			return nil
		}
		return do(cm)
	})
	if err != nil {
		return fmt.Errorf("listing the transactions in namespace %q: %w", q.Namespace, err)
	}
	return nil
}

// EachName calls do with the metadata of every ConfigMap of the transaction namespace, ours or not,
// by a live read in pages, and stops at the first error.
func (q *Queue) EachName(ctx context.Context, do func(*metav1.PartialObjectMetadata) error) error {
	if err := pages.Each(ctx, q.Client, pages.Metadata("ConfigMap"), q.Namespace, do); err != nil {
		return fmt.Errorf("listing the transactions in namespace %q: %w", q.Namespace, err)
	}
	return nil
}

// Put stores a transaction. It is idempotent by its name: nil means that this event is or was in
// the queue, whoever stored it. [ErrNameTaken], [ErrNameFreed] and all other errors except
// [ErrTooLarge] must be retried. If another transaction has the name, it is marked as urgent,
// because this one waits for it, see [Queue.Expedite]. The same happens if this one is urgent and
// already stored.
func (q *Queue) Put(ctx context.Context, t txn.Transaction) error {
	cm := t.ConfigMap(q.Namespace)
	if txn.DataBytes(cm.Data) > txn.MaxDataBytes {
		return ErrTooLarge
	}
	err := q.Client.Create(ctx, cm)
	switch {
	case apierrors.IsAlreadyExists(err):
		return q.confirm(ctx, t)
	case txn.TooLarge(err):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return fmt.Errorf("storing transaction %s of node %q: %w", t.Name(), t.Node, err)
	}
	return nil
}

// HasEvent reports, by a live read, whether the queue holds the event that t records. Unlike
// [Queue.Put], it marks no transaction as urgent.
func (q *Queue) HasEvent(ctx context.Context, t txn.Transaction) (bool, error) {
	cm, err := q.read(ctx, t.Name())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	existing, err := Parse(cm)
	return err == nil && existing.IsSameEvent(t), nil
}

// confirm returns nil if the ConfigMap with the name of t records the same event.
func (q *Queue) confirm(ctx context.Context, t txn.Transaction) error {
	cm, err := q.read(ctx, t.Name())
	if apierrors.IsNotFound(err) {
		// It is unknown whether the object with that name was t. Storing t again is right in either case.
		return fmt.Errorf("%w: %w", ErrNameFreed, err)
	}
	if err != nil {
		return err
	}
	existing, err := Parse(cm)
	taken := err != nil || !existing.IsSameEvent(t)
	// An addition is applied at once anyway. The mark would make it a request, which replaces edits, see
	// [txn.Transaction.IsRequest].
	isAddition := err == nil && existing.Type == txn.Added && !t.IsRequest()
	if err == nil && (t.AtOnce || taken) && !isAddition {
		if err := q.Expedite(ctx, existing); err != nil {
			return err
		}
	}
	if taken {
		return fmt.Errorf("storing transaction %s of node %q: %w", t.Name(), t.Node, ErrNameTaken)
	}
	return nil
}

// Holds reports, by a live read, whether a transaction is in the queue.
func (q *Queue) Holds(ctx context.Context, t Queued) (bool, error) {
	cm, err := q.read(ctx, t.Name())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return cm.UID == t.ObjectUID, nil
}

// read returns a ConfigMap of the transaction namespace, by a live read. If it does not exist,
// apierrors.IsNotFound reports true for the error.
func (q *Queue) read(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := q.Client.Get(ctx, types.NamespacedName{Namespace: q.Namespace, Name: name}, cm); err != nil {
		return nil, fmt.Errorf("reading transaction %q: %w", name, err)
	}
	return cm, nil
}

// Remove removes a transaction from the queue. It is deleted by its UID, so another one that has
// taken its name since is kept. If it does not exist, Remove returns nil.
func (q *Queue) Remove(ctx context.Context, t Queued) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: t.Name()}}
	err := q.Client.Delete(ctx, cm, client.Preconditions{UID: &t.ObjectUID})
	// NotFound: another processor has removed it, or the response to our own delete was lost.
	// Conflict: the name belongs to another object now, so this one is gone, too.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing transaction %s of node %q: %w", t.Name(), t.Node, err)
	}
	return nil
}
