// Package records is the only package that reads and writes the ConfigMaps of records. Every write
// is conditional on the record that was read.
package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

var (
	// ErrStale means that a write was rejected because the record has changed or was removed since
	// it was read.
	ErrStale = errors.New("the record has changed since it was read")
	// ErrTooLarge means that the labels do not fit into a ConfigMap, so the record can never be
	// stored.
	ErrTooLarge = errors.New("the labels do not fit into the ConfigMap of a record")
)

// Records reads and writes records. It is safe for concurrent use.
type Records struct {
	// Client reads and writes the API server directly, without a cache.
	Client client.Client
	// Cache holds the ConfigMaps of the namespace and may be stale; only methods with Cached in
	// their names read it. It is nil for programs without a cache.
	Cache client.Reader
	// Namespace is the metadata namespace.
	Namespace string
}

// Stored is a record in the cluster. The zero value means that there is none.
type Stored struct {
	// Record is nil if it does not exist or is unreadable.
	Record *record.Record
	// Object is its ConfigMap.
	Object *corev1.ConfigMap
	// Unreadable is the reason why the record is unreadable; it wraps [record.ErrUnreadable].
	Unreadable error
}

// Parse returns the record in a ConfigMap of the metadata namespace.
func Parse(cm *corev1.ConfigMap) Stored {
	r, err := record.Parse(cm)
	return Stored{Record: r, Object: cm, Unreadable: err}
}

// Get returns the record of a node, by a live read. An unreadable record is not an error of Get.
func (r *Records) Get(ctx context.Context, node string) (Stored, error) {
	return r.get(ctx, r.Client, node)
}

// Cached returns the record of a node from the cache.
func (r *Records) Cached(ctx context.Context, node string) (Stored, error) {
	return r.get(ctx, r.Cache, node)
}

func (r *Records) get(ctx context.Context, from client.Reader, node string) (Stored, error) {
	cm := &corev1.ConfigMap{}
	err := from.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: node}, cm)
	if apierrors.IsNotFound(err) || err == nil && node == record.RootCAName {
		return Stored{}, nil // the node has no saved labels
	}
	if err != nil {
		return Stored{}, fmt.Errorf("reading the record of node %q: %w", node, err)
	}
	return Parse(cm), nil
}

// Each calls do with every ConfigMap of the namespace that is ours, readable or not, by a live read
// in pages, and stops at the first error.
func (r *Records) Each(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	return r.EachConfigMap(ctx, func(cm *corev1.ConfigMap) error {
		if !record.Ours(cm) {
			return nil
		}
		return do(cm)
	})
}

// EachConfigMap is like Each, and includes the ConfigMaps of other programs that may have the name
// of a node.
func (r *Records) EachConfigMap(ctx context.Context, do func(*corev1.ConfigMap) error) error {
	newList := func() client.ObjectList { return &corev1.ConfigMapList{} }
	err := pages.Each(ctx, r.Client, newList, r.Namespace, func(cm *corev1.ConfigMap) error {
		if cm.Name == record.RootCAName {
			return nil
		}
		return do(cm)
	})
	if err != nil {
		return fmt.Errorf("listing the records in namespace %q: %w", r.Namespace, err)
	}
	return nil
}

// Write replaces the record that was read, and returns the stored one. It returns [ErrStale] if the
// record that was read has changed, and [ErrTooLarge] if the new one can never be stored. A create
// is conditional on the name, an update on the resourceVersion.
func (r *Records) Write(ctx context.Context, read Stored, next record.Record) (Stored, error) {
	if read.Record == nil || read.Record.Revision != next.Revision {
		next.SavedAt = time.Now()
	}
	var cm *corev1.ConfigMap
	var err error
	if read.Object == nil {
		cm = next.ConfigMap(r.Namespace)
	} else {
		cm = read.Object.DeepCopy()
		next.Write(cm)
	}
	if txn.DataBytes(cm.Data) > txn.MaxDataBytes {
		return Stored{}, ErrTooLarge
	}
	if read.Object == nil {
		err = r.Client.Create(ctx, cm)
	} else {
		err = r.Client.Update(ctx, cm)
	}
	// AlreadyExists, Conflict: another write came first, or the response to our own was lost.
	// NotFound: the record was removed since it was read.
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && read.Object != nil {
		return Stored{}, ErrStale
	}
	if txn.TooLarge(err) {
		return Stored{}, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("storing the record of node %q: %w", next.Node, err)
	}
	return Stored{Record: &next, Object: cm}, nil
}

// Forget replaces a record by the result of preserve.Forgotten, and drops labels and annotations
// that users added to the record. It returns [ErrStale] if the record that was read has changed.
func (r *Records) Forget(ctx context.Context, read Stored, next record.Record) (Stored, error) {
	bare := read.Object.DeepCopy()
	bare.Labels, bare.Annotations = nil, nil
	return r.Write(ctx, Stored{Object: bare}, next)
}

// Create stores an exported record, conditional on its name. It returns [ErrStale] if one of that
// name exists.
func (r *Records) Create(ctx context.Context, cm *corev1.ConfigMap) error {
	err := r.Client.Create(ctx, cm.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("storing the record of node %q: %w", cm.Name, err)
	}
	return nil
}

// Replace stores the metadata and data of a ConfigMap in place of the one that was read. It returns
// [ErrStale] if that has changed.
func (r *Records) Replace(ctx context.Context, read, next *corev1.ConfigMap) error {
	cm := read.DeepCopy()
	cm.Labels, cm.Annotations, cm.Data, cm.BinaryData = next.Labels, next.Annotations, next.Data, next.BinaryData
	err := r.Client.Update(ctx, cm)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("replacing the record of node %q: %w", next.Name, err)
	}
	return nil
}

// EachName calls do with the name of every node that has a record, by a live read of metadata in
// pages.
func (r *Records) EachName(ctx context.Context, do func(node string)) error {
	err := pages.Each(ctx, r.Client, pages.Metadata("ConfigMap"), r.Namespace, func(m *metav1.PartialObjectMetadata) error {
		cm := &corev1.ConfigMap{ObjectMeta: m.ObjectMeta}
		if _, forgotten := m.Annotations[record.ForgottenAnnotation]; record.Ours(cm) && !forgotten {
			do(m.Name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the records in namespace %q: %w", r.Namespace, err)
	}
	return nil
}

// EachCached calls do with every ConfigMap of the namespace that is ours, from the cache. do must
// not change it.
func (r *Records) EachCached(ctx context.Context, do func(*corev1.ConfigMap)) error {
	var list corev1.ConfigMapList
	if err := r.Cache.List(ctx, &list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the records in namespace %q: %w", r.Namespace, err)
	}
	for i := range list.Items {
		if record.Ours(&list.Items[i]) {
			do(&list.Items[i])
		}
	}
	return nil
}

// Remove deletes a record, conditional on its UID and resourceVersion. It returns [ErrStale] if the
// record has changed.
func (r *Records) Remove(ctx context.Context, read Stored) error {
	cm := read.Object
	err := r.Client.Delete(ctx, cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("removing the record of node %q: %w", cm.Name, err)
	}
	return nil
}

// Annotate sets annotations of a record, or removes the nil ones, conditional on the record
// that was read. It returns [ErrStale] if the record has changed.
func (r *Records) Annotate(ctx context.Context, read *corev1.ConfigMap, annotations map[string]*string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the patch of the record of node %q: %w", read.Name, err)
	}
	err = r.Client.Patch(ctx, read.DeepCopy(), client.RawPatch(types.MergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("annotating the record of node %q: %w", read.Name, err)
	}
	return nil
}
