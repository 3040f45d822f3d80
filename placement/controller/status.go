package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json" // which decodes whole numbers as int64

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/ready"
)

// The fields of a status besides the decision.
const (
	observedField   = "observedGeneration"
	workingField    = "readyVReplicas"
	conditionsField = "conditions"
)

// optionalFields are those that a kind with annotations may have. Its observedGeneration belongs to
// the kind's own controller.
var optionalFields = []string{workingField, conditionsField}

// annotationsField is the field of a status with annotations.
const annotationsField = "annotations"

// ownFields are the fields of a status that this program writes, besides conditions. Those of a
// kind with annotations are optionalFields.
var ownFields = []string{"placements", "releasing", "decision", observedField, workingField}

func (k *Kind) annotations() placement.Annotations {
	return placement.Annotations{Prefix: k.AnnotationPrefix}
}

// decodeStatus returns the status of a resource, or an error if placement cannot have written it.
func (k *Kind) decodeStatus(u *unstructured.Unstructured) (s placement.Status, err error) {
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, k.StatusPath...)
	if err != nil || value == nil {
		return s, err //nolint:wrapcheck // it names the path
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return s, fmt.Errorf("%w: it is no object", placement.ErrMalformedStatus)
	}
	if k.AnnotationPrefix == "" {
		s, err = decodeFields(fields)
	} else {
		s, err = k.decodeAnnotations(fields, u.GetGeneration())
	}
	if err != nil {
		return placement.Status{}, err
	}
	shareStrings(&s)
	return s, s.Check()
}

// shareStrings makes equal strings of all statuses use the same memory: many resources name the same
// pods, and have the same reasons.
func shareStrings(s *placement.Status) {
	share := func(all ...*string) {
		for _, one := range all {
			*one = unique.Make(*one).Value()
		}
	}
	for _, shares := range [][]placement.Placement{s.Placement, s.Releasing} {
		for i := range shares {
			share(&shares[i].PodName, &shares[i].Incarnation, &shares[i].Indexes)
		}
	}
	for i := range s.Conditions {
		share(&s.Conditions[i].Type, &s.Conditions[i].Reason, &s.Conditions[i].Message)
	}
}

// decodeFields decodes the fields of placement.Status. Conditions of other programs may have any
// form.
func decodeFields(fields map[string]any) (s placement.Status, err error) {
	own := map[string]any{"maxAllowedVReplicas": fields["maxAllowedVReplicas"]}
	for _, name := range ownFields {
		own[name] = fields[name]
	}
	text, err := json.Marshal(own)
	if err != nil {
		return s, fmt.Errorf("reading the status: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%w: %w", placement.ErrMalformedStatus, err)
	}
	s.Conditions = decodeConditions(fields, "")
	return s, nil
}

// decodeAnnotations decodes the annotations of a status, and the fields that it has besides.
// Conditions that do not have a generation, such as those of Knative, count for the present one.
func (k *Kind) decodeAnnotations(fields map[string]any, generation int64) (s placement.Status, err error) {
	values, _, err := unstructured.NestedStringMap(fields, annotationsField)
	if err != nil {
		return s, fmt.Errorf("%w: %w", placement.ErrMalformedStatus, err)
	}
	if s, err = k.annotations().Decode(values); err != nil {
		return s, err //nolint:wrapcheck // it names the annotation
	}
	working, _, _ := unstructured.NestedInt64(fields, workingField)
	s.ReadyVReplicas = int32(min(max(working, 0), placement.MaxReplicas))
	s.Conditions = decodeConditions(fields, k.conditionPrefix())
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.ObservedGeneration == 0 {
			c.ObservedGeneration = generation
		}
	}
	return s, nil
}

// conditionPrefix is what the types of conditions begin with. A kind with annotations has conditions
// of its own, such as Ready, which belong to its own controller.
func (k *Kind) conditionPrefix() string {
	if k.AnnotationPrefix == "" {
		return ""
	}
	return "Placement"
}

// ownConditions is how many conditions placement has.
const ownConditions = 3

// isOwn reports whether a condition is one of placement.
func isOwn(kind any, prefix string) bool {
	return kind == prefix+ready.Scheduled || kind == prefix+ready.Acknowledged || kind == prefix+ready.Ready
}

// decodeConditions returns the conditions of placement, without malformed ones, and without the
// prefix of their types.
func decodeConditions(fields map[string]any, prefix string) (all []metav1.Condition) {
	list, _ := fields[conditionsField].([]any)
	for _, one := range list {
		values, ok := one.(map[string]any)
		if !ok || !isOwn(values["type"], prefix) {
			continue
		}
		var c metav1.Condition
		if text, err := json.Marshal(values); err == nil && json.Unmarshal(text, &c) == nil {
			c.Type = strings.TrimPrefix(c.Type, prefix)
			if all == nil {
				all = make([]metav1.Condition, 0, ownConditions)
			}
			all = append(all, c)
		}
	}
	return all
}

// withStatus returns a copy of a resource with another status. What else is in the status remains.
func (r *resource) withStatus(s *placement.Status) (*unstructured.Unstructured, error) {
	next := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(r.encoded, &next.Object); err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	fields, _, err := unstructured.NestedMap(next.Object, r.kind.StatusPath...)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	if fields == nil {
		fields = map[string]any{}
	}
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	if r.kind.AnnotationPrefix == "" {
		for _, name := range ownFields {
			delete(fields, name)
			if encoded[name] != nil {
				fields[name] = encoded[name]
			}
		}
	} else if err := r.kind.encodeAnnotations(s, fields); err != nil {
		return nil, err
	}
	mergeConditions(fields, encoded, r.kind.conditionPrefix())
	if err := unstructured.SetNestedMap(next.Object, fields, r.kind.StatusPath...); err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return next, nil
}

// encodeAnnotations sets the annotations of a status, and the number that work. It is always set, so
// that it is missing only if the kind lacks it.
func (k *Kind) encodeAnnotations(s *placement.Status, fields map[string]any) error {
	before, _, err := unstructured.NestedStringMap(fields, annotationsField)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	values := map[string]any{}
	for key, value := range k.annotations().Encode(s, before) {
		values[key] = value
	}
	delete(fields, annotationsField)
	if len(values) > 0 {
		fields[annotationsField] = values
	}
	fields[workingField] = int64(s.ReadyVReplicas)
	return nil
}

// mergeConditions replaces the conditions of placement. Those of other programs stay as they are.
func mergeConditions(fields, encoded map[string]any, prefix string) {
	before, _ := fields[conditionsField].([]any)
	next := map[any]any{}
	list, _ := encoded[conditionsField].([]any)
	for _, one := range list {
		if values, ok := one.(map[string]any); ok {
			kind, _ := values["type"].(string)
			values["type"] = prefix + kind
			next[prefix+kind] = values
		}
	}
	var merged []any
	for _, one := range before {
		values, _ := one.(map[string]any)
		if kind := values["type"]; isOwn(kind, prefix) {
			if one = next[kind]; one == nil {
				continue
			}
			delete(next, kind)
		}
		merged = append(merged, one)
	}
	for _, kind := range []string{ready.Scheduled, ready.Acknowledged, ready.Ready} {
		if one := next[prefix+kind]; one != nil {
			merged = append(merged, one)
		}
	}
	delete(fields, conditionsField)
	if len(merged) > 0 {
		fields[conditionsField] = merged
	}
}

// missing returns the optional fields that a status lacks, of a kind with annotations.
func (k *Kind) missing(u *unstructured.Unstructured) (fields []string) {
	if k.AnnotationPrefix == "" {
		return nil
	}
	for _, field := range optionalFields {
		if k.isMissing(u, field) {
			fields = append(fields, field)
		}
	}
	return fields
}

// isMissing reports whether a status that this program has written lacks a field.
func (k *Kind) isMissing(u *unstructured.Unstructured, field string) bool {
	fields, _, _ := unstructured.NestedFieldNoCopy(u.Object, k.StatusPath...)
	values, _ := fields.(map[string]any)
	if field == conditionsField {
		return len(decodeConditions(values, k.conditionPrefix())) == 0
	}
	return values[field] == nil
}

// storable returns what the kind of a resource can store of a status. It lacks a field if that is
// missing although a decision was written, or was missing in an earlier answer.
func (r *resource) storable(s placement.Status) placement.Status {
	if r.kind.AnnotationPrefix == "" {
		return s
	}
	lacks := func(field string) bool {
		return r.kind.lacks[field] || r.status.Decision > 0 && slices.Contains(r.missing, field)
	}
	if lacks(workingField) {
		s.ReadyVReplicas = 0
	}
	if lacks(conditionsField) {
		s.Conditions = nil
	}
	return s
}

// isSameDecision reports whether two statuses have the same decision.
func isSameDecision(a, b *placement.Status) bool {
	return a.Decision == b.Decision && isSameShares(a.Placement, b.Placement) && isSameShares(a.Releasing, b.Releasing)
}

func isSameShares(a, b []placement.Placement) bool { return equality.Semantic.DeepEqual(a, b) }

// isSameVerdict reports whether two statuses differ in numbers, messages and times at most.
func isSameVerdict(a, b *placement.Status) bool {
	return a.ObservedGeneration == b.ObservedGeneration && slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.ObservedGeneration == y.ObservedGeneration
	})
}

// isSameSince reports whether two lists of conditions have the same transition times, as they are
// stored. [ready.Hold] counts from them, so one that it corrects must be stored.
func isSameSince(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool {
		return x.LastTransitionTime.Unix() == y.LastTransitionTime.Unix()
	})
}

// isSameDetail reports whether two statuses have the same numbers and messages, too.
func isSameDetail(a, b *placement.Status) bool {
	return a.ReadyVReplicas == b.ReadyVReplicas && slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool { return x.Message == y.Message })
}
