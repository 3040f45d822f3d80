package assignment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"nodekeeper.dev/sharding/internal/ring"
)

// writeTimeout bounds each write.
const writeTimeout = 5 * time.Second

// errConflict means that an object has changed since it was read. The next event or retry provides
// the current version.
var errConflict = errors.New("the object has changed since it was read")

// change is a change of an object's metadata. A nil value removes a key.
type change struct {
	labels, annotations map[string]*string
	// isOfVersion is set if the change is only right for the version that was read, and not for another
	// one with the same labels.
	isOfVersion bool
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// test is a test operation whose value can be null, which means that the key must be missing.
type test struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	Value *string `json:"value"`
}

// patchOf returns the JSON patch of a change. It succeeds only for the same object (by UID), and
// only if the labels in known have the values that were read. It does not conflict with unrelated
// changes, unless it is of a version.
func patchOf(m *metav1.PartialObjectMetadata, known []string, c change) ([]byte, error) {
	uid := string(m.UID)
	all := []any{test{"test", "/metadata/uid", &uid}}
	if c.isOfVersion {
		all = append(all, test{"test", "/metadata/resourceVersion", &m.ResourceVersion})
	}
	all = append(all, edits("/metadata/labels", m.Labels, known, c.labels)...)
	all = append(all, edits("/metadata/annotations", m.Annotations, nil, c.annotations)...)
	patch, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

// edits returns the operations on one of the maps of the metadata, given the entries that were
// read.
func edits(path string, before map[string]string, known []string, changes map[string]*string) (all []any) {
	if before == nil {
		after := map[string]string{}
		for key, value := range changes {
			if value != nil {
				after[key] = *value
			}
		}
		if len(after) == 0 {
			return nil
		}
		return []any{test{"test", path, nil}, operation{"add", path, after}}
	}
	for _, key := range known {
		var value *string
		if v, ok := before[key]; ok {
			value = &v
		}
		all = append(all, test{"test", path + "/" + escape(key), value})
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := changes[key]
		_, exists := before[key]
		switch {
		case value != nil:
			all = append(all, operation{"add", path + "/" + escape(key), *value})
		case exists:
			all = append(all, operation{"remove", path + "/" + escape(key), nil})
		}
	}
	return all
}

// escape escapes a key for a JSON pointer (RFC 6901).
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1") // creating a Replacer would cost more
}

// write changes an object on the condition that it is as it was read, and returns the new version.
// It returns errConflict if the condition does not hold.
func write(ctx context.Context, c metadata.ResourceInterface, m *metav1.PartialObjectMetadata, known []string, to change) (*metav1.PartialObjectMetadata, error) {
	patch, err := patchOf(m, known, to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	after, err := c.Patch(ctx, m.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: ring.FieldManager})
	switch {
	case (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) && hasChanged(ctx, c, m, known, to):
		return nil, fmt.Errorf("%w: %w", errConflict, err)
	case err != nil:
		return nil, fmt.Errorf("patching %s %s: %w", m.Kind, keyFor(m), err)
	}
	return after, nil
}

// hasChanged reports whether an object is not as it was read, so that a patch of it fails. The API
// server answers a failed test in the same way as an admission policy, a webhook or a schema that
// refuses the result of a patch; therefore only the object shows the difference. It is listed by its
// name, because the sharder may list all resources, but not get them.
func hasChanged(ctx context.Context, c metadata.ResourceInterface, m *metav1.PartialObjectMetadata, known []string, to change) bool {
	all, err := c.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + m.Name})
	if err != nil {
		return false // the answer to the patch is reported, and the write is retried
	}
	for i := range all.Items {
		if now := &all.Items[i]; now.UID == m.UID {
			return to.isOfVersion && m.ResourceVersion != now.ResourceVersion ||
				!isSame(m.Labels, now.Labels, slices.AppendSeq(slices.Clone(known), maps.Keys(to.labels))) ||
				len(to.annotations) > 0 && !isSame(m.Annotations, now.Annotations, slices.Collect(maps.Keys(to.annotations)))
		}
	}
	return true
}

// isSame reports whether two versions of a map have the same values for some keys. A nil map
// differs from an empty one, as for patches.
func isSame(a, b map[string]string, keys []string) bool {
	return (a == nil) == (b == nil) && maps.Equal(only(a, keys...), only(b, keys...))
}

// hasNoRoom reports whether the API server has refused a change because the annotations would
// exceed their size limit.
func hasNoRoom(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeTooLong && c.Field == "metadata.annotations"
	})
}
