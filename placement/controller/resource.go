package controller

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// resource is what placement needs of a resource.
type resource struct {
	object *unstructured.Unstructured
	kind   *kindState
	status placement.Status
	// malformed is why the status cannot be used. Nothing is changed then.
	malformed error
	// wanted is the number of virtual replicas to place. If the desired number is invalid, it is
	// that of the last decision.
	wanted           int32
	limited, invalid bool
	weight           int32
	placed           contract.Placed // without Live and Gone
	bytes            int             // of an entry without indexes, at most
}

// parser returns the function that parses the resources of a kind.
func parser(k *kindState, maxReplicas int32) func(metav1.Object) *resource {
	return func(o metav1.Object) *resource {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			u = &unstructured.Unstructured{}
		}
		r := &resource{object: u, kind: k}
		r.status, r.malformed = decodeStatus(u, k.StatusPath)
		r.readWanted(maxReplicas)
		r.weight = 1
		if weight, err := numberAt(u, k.WeightPath); err == nil && weight != nil {
			r.weight = *weight
		}
		r.placed = contract.Placed{
			Reference:  contract.Reference{UID: u.GetUID(), APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()},
			Generation: u.GetGeneration(), Of: r.wanted, Payload: payloadAt(u, k.PayloadPath), Status: r.status,
		}
		r.bytes = r.placed.Bytes(0)
		return r
	}
}

// readWanted determines the number of virtual replicas to place.
func (r *resource) readWanted(maxReplicas int32) {
	desired, err := numberAt(r.object, r.kind.ReplicasPath)
	most, mostErr := numberAt(r.object, r.kind.MaxPath)
	if r.status.MaxAllowedVReplicas != nil && (most == nil || *r.status.MaxAllowedVReplicas < *most) {
		most = r.status.MaxAllowedVReplicas
	}
	if err == nil && mostErr == nil {
		r.wanted, r.limited, err = placement.Wanted(desired, most, maxReplicas)
	}
	if err != nil || mostErr != nil {
		r.invalid, r.wanted = true, r.decided()
	}
	if r.object.GetDeletionTimestamp() != nil { // it waits for a finalizer of another program
		r.wanted, r.limited, r.invalid = 0, false, false
	}
}

// decided returns the number of virtual replicas of the last decision.
func (r *resource) decided() (n int32) {
	if r.malformed != nil {
		return 0
	}
	for i := range r.status.Placement {
		if set := setOf(&r.status.Placement[i]); len(set) > 0 {
			n = max(n, set[len(set)-1]+1)
		}
	}
	return min(n, placement.MaxReplicas)
}

// setOf returns the indexes of a share of a status that is not malformed.
func setOf(p *placement.Placement) schedule.Set {
	set, _ := p.Set()
	return set
}

// numberAt returns a number in an object, or nil if there is none.
func numberAt(u *unstructured.Unstructured, path []string) (*int32, error) {
	if len(path) == 0 {
		return nil, nil //nolint:nilnil // as documented
	}
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || !found || value == nil {
		return nil, err //nolint:wrapcheck // it names the path
	}
	switch n := value.(type) {
	case int64:
		if n >= math.MinInt32 && n <= math.MaxInt32 {
			return new(int32(n)), nil
		}
	case float64:
		if n == math.Trunc(n) && n >= math.MinInt32 && n <= math.MaxInt32 {
			return new(int32(n)), nil
		}
	}
	return nil, fmt.Errorf("%w: %v", placement.ErrInvalidReplicas, value)
}

// payloadAt returns the payload of a resource, or nil if there is none.
func payloadAt(u *unstructured.Unstructured, path []string) json.RawMessage {
	if len(path) == 0 {
		return nil
	}
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || !found {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return text
}

// decodeStatus returns the status of a resource, or an error if placement cannot have written it.
func decodeStatus(u *unstructured.Unstructured, path []string) (s placement.Status, err error) {
	fields, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || fields == nil {
		return s, err //nolint:wrapcheck // it names the path
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return s, fmt.Errorf("reading the status: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return placement.Status{}, fmt.Errorf("%w: %w", placement.ErrMalformedStatus, err)
	}
	return s, s.Check()
}

// ownFields are the fields of a status that this program writes.
var ownFields = []string{"placements", "releasing", "decision", "observedGeneration", "readyVReplicas", "conditions"}

// withStatus returns a copy of a resource with another status. Other fields of the status remain.
func (r *resource) withStatus(s *placement.Status) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	next := r.object.DeepCopy()
	before, _, err := unstructured.NestedMap(next.Object, r.kind.StatusPath...)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	if before == nil {
		before = map[string]any{}
	}
	for _, name := range ownFields {
		if value, ok := fields[name]; ok {
			before[name] = value
		} else {
			delete(before, name)
		}
	}
	if err := unstructured.SetNestedMap(next.Object, before, r.kind.StatusPath...); err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return next, nil
}

// isSameDecision reports whether two statuses have the same decision.
func isSameDecision(a, b *placement.Status) bool {
	return a.Decision == b.Decision && a.ObservedGeneration == b.ObservedGeneration &&
		isSameShares(a.Placement, b.Placement) && isSameShares(a.Releasing, b.Releasing)
}

func isSameShares(a, b []placement.Placement) bool { return equality.Semantic.DeepEqual(a, b) }

// isSameVerdict reports whether two lists of conditions differ in their messages at most.
func isSameVerdict(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool {
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
