package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// ErrStale means that a write was rejected because the transaction has changed since it was read.
var ErrStale = errors.New("the transaction has changed since it was read")

// retriedAtAnnotation is when a user requested another attempt. Setting it triggers the attempt.
const retriedAtAnnotation = "nodekeeper.dev/retried-at"

// Read returns a ConfigMap of the transaction namespace that is ours, readable or not, by a live
// read, or nil if it does not exist.
func (q *Queue) Read(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	cm, err := q.read(ctx, name)
	if apierrors.IsNotFound(err) || err == nil && !txn.Ours(cm) {
		return nil, nil //nolint:nilnil // "there is none" is an answer, not an error
	}
	return cm, err
}

// Touch changes a ConfigMap so that the processors retry it, and releases it from quarantine,
// conditional on its read version, see [ErrStale]. If it does not exist, it has been applied,
// and Touch returns nil.
func (q *Queue) Touch(ctx context.Context, read *corev1.ConfigMap, now time.Time) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             read.UID,
		"resourceVersion": read.ResourceVersion,
		"annotations":     map[string]string{retriedAtAnnotation: now.UTC().Format(time.RFC3339Nano)},
		"labels":          map[string]*string{txn.MalformedLabel: nil},
	}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return answer(q.Client.Patch(ctx, read.DeepCopy(), client.RawPatch(types.MergePatchType, body)))
}

// Discard deletes a ConfigMap without applying it, conditional on the one that was read, see
// [ErrStale]. If it does not exist, it was applied, or the response to an earlier attempt was lost,
// and Discard returns nil.
func (q *Queue) Discard(ctx context.Context, read *corev1.ConfigMap) error {
	return answer(q.Client.Delete(ctx, read, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion}))
}

func answer(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return ErrStale
	}
	return err
}
