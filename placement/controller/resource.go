package controller

import (
	"encoding/json"
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		r.status, r.malformed = k.decodeStatus(u)
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
	desired, err := r.kind.desired(r.object)
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

// desired returns the desired number of virtual replicas, or nil if there is none.
func (k *Kind) desired(u *unstructured.Unstructured) (*int32, error) {
	if k.AnnotationPrefix == "" {
		return numberAt(u, k.ReplicasPath)
	}
	n, err := k.annotations().Replicas(u.GetAnnotations())
	return &n, err //nolint:wrapcheck // it names the annotation
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
