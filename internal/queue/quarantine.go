package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// ErrNameKept means that a malformed transaction cannot be moved, so a transaction that has its
// name cannot be stored. Retry until the user has removed the obstacle.
var ErrNameKept = errors.New("its name stays taken")

// Quarantine marks a malformed transaction as quarantined, and frees its name, which a watcher may
// need for an event of its own. It does nothing and returns nil if the ConfigMap seen has changed
// or was deleted. Otherwise it returns the ConfigMap that is kept: a marked copy under a name that
// no transaction has, or the original if no transaction can have its name. If the API server
// refuses the move, it returns the original and [ErrNameKept].
func (q *Queue) Quarantine(ctx context.Context, seen *Entry) (*corev1.ConfigMap, error) {
	if _, _, ok := txn.SplitName(seen.Name); !ok {
		return q.mark(ctx, &corev1.ConfigMap{ObjectMeta: seen.ObjectMeta})
	}
	cm, err := q.read(ctx, seen.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // another processor has moved it
	case err != nil:
		return nil, err
	case cm.UID != seen.UID || cm.ResourceVersion != seen.ResourceVersion:
		return nil, nil //nolint:nilnil // the watch delivers the change
	case cm.DeletionTimestamp != nil:
		return cm, fmt.Errorf("%w: it is deleted, except for the finalizers %q", ErrNameKept, cm.Finalizers)
	}
	kept, err := q.copyOf(ctx, cm)
	if refused(err) {
		if marked, err := q.mark(ctx, cm); marked == nil || err != nil {
			return nil, err
		}
		return cm, fmt.Errorf("%w: copying it: %w", ErrNameKept, err)
	}
	if err != nil {
		return nil, fmt.Errorf("copying %q: %w", cm.Name, err)
	}
	err = q.Client.Delete(ctx, cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return nil, nil //nolint:nilnil // the watch delivers the change; the copy keeps what was there before
	case refused(err):
		return cm, fmt.Errorf("%w: deleting it: %w", ErrNameKept, err)
	case err != nil && !apierrors.IsNotFound(err): // NotFound: another processor has deleted it
		return nil, fmt.Errorf("deleting %q: %w", cm.Name, err)
	}
	return kept, nil
}

// copyOf stores a marked copy of a malformed transaction. Its name identifies the version that is
// copied, so a repetition changes nothing.
func (q *Queue) copyOf(ctx context.Context, cm *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	kept := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cm.Namespace, Name: fmt.Sprintf("malformed.%s.%s", cm.UID, cm.ResourceVersion),
			Labels: maps.Clone(cm.Labels), Annotations: maps.Clone(cm.Annotations),
		},
		Data: cm.Data, BinaryData: cm.BinaryData, Immutable: cm.Immutable,
	}
	metav1.SetMetaDataLabel(&kept.ObjectMeta, txn.MalformedLabel, "true")
	metav1.SetMetaDataAnnotation(&kept.ObjectMeta, txn.MalformedNameAnnotation, cm.Name)
	err := q.Client.Create(ctx, kept)
	if apierrors.IsAlreadyExists(err) { // by another processor, or the response to an earlier attempt was lost
		return q.read(ctx, kept.Name)
	}
	return kept, err //nolint:wrapcheck // the caller adds the context
}

// refused reports whether the API server, an admission plugin or a quota refuses a write of this
// object.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || txn.TooLarge(err)
}

// mark sets the label [txn.MalformedLabel] on a ConfigMap, conditional on the given one. It returns
// nil if that has changed or was deleted.
func (q *Queue) mark(ctx context.Context, seen *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": seen.UID, "resourceVersion": seen.ResourceVersion, "labels": map[string]string{txn.MalformedLabel: "true"},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of %q: %w", seen.Name, err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: seen.Namespace, Name: seen.Name}}
	err = q.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, body))
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // the watch delivers the change
	case err != nil:
		return nil, fmt.Errorf("marking %q as malformed: %w", seen.Name, err)
	}
	return cm, nil
}
