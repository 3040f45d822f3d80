package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// resource is what placement needs of a resource.
type resource struct {
	// encoded is the object as JSON, without its managed fields: an API server leaves those of an
	// update without any as they are. It takes a fraction of the memory of the decoded object.
	encoded         []byte
	resourceVersion string
	kind            *kindState
	status          placement.Status
	// missing are the optional fields that the status lacks, of a kind with annotations.
	missing []string
	// malformed is why the status cannot be used. Nothing is changed then.
	malformed error
	// wanted is the number of virtual replicas to place. If the desired number is invalid, it is
	// that of the last decision.
	wanted           int32
	limited, invalid bool
	weight           int32
	placed           contract.Placed // without Status, Live and Gone
	bytes            int             // of an entry without indexes, at most

	// numbers holds how many virtual replicas pods have by the status.
	numbers map[string]int32
	// tidy is set if each share is the only one of its pod and has indexes that no other share has,
	// all of them wanted, and none is being released.
	tidy bool
}

func (r *resource) uid() types.UID { return r.placed.UID }

func (r *resource) generation() int64 { return r.placed.Generation }

// ref identifies the resource in logs.
func (r *resource) ref() klog.ObjectRef { return klog.KRef(r.placed.Namespace, r.placed.Name) }

// parser returns the function that parses the resources of a kind.
func parser(k *kindState, maxReplicas int32) func(metav1.Object) *resource {
	return func(o metav1.Object) *resource {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			u = &unstructured.Unstructured{}
		}
		r := &resource{kind: k, resourceVersion: u.GetResourceVersion()}
		r.status, r.malformed = k.decodeStatus(u)
		r.readWanted(u, maxReplicas)
		r.weight = 1
		if weight, err := numberAt(u, k.WeightPath); err == nil && weight != nil {
			r.weight = *weight
		}
		r.placed = contract.Placed{
			Reference:  contract.Reference{UID: u.GetUID(), APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()},
			Generation: u.GetGeneration(), Of: r.wanted, Payload: payloadAt(u, k.PayloadPath),
		}
		r.bytes = r.placed.Bytes(0)
		r.readShares()
		r.missing, r.encoded = k.missing(u), encode(u)
		return r
	}
}

// encode returns an object as JSON, without its managed fields.
func encode(u *unstructured.Unstructured) []byte {
	slim := maps.Clone(u.Object)
	if meta, ok := slim["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "managedFields")
		slim["metadata"] = meta
	}
	text, err := json.Marshal(slim)
	if err != nil {
		return nil // it was decoded from JSON
	}
	return text
}

// readShares determines what pods have by the status.
func (r *resource) readShares() {
	if r.malformed != nil {
		return // it may have more indexes than a resource can have
	}
	var sets map[string]schedule.Set
	r.numbers, sets = r.present(anyShare)
	total, seen := 0, map[int32]bool{}
	for i := range r.status.Placement {
		set := setOf(&r.status.Placement[i])
		total += len(set)
		for _, index := range set {
			seen[index] = true
		}
	}
	placed := 0
	for _, set := range sets {
		placed += len(set)
	}
	r.tidy = len(r.status.Releasing) == 0 && len(sets) == len(r.status.Placement) && len(seen) == total && placed == total
}

// readWanted determines the number of virtual replicas to place.
func (r *resource) readWanted(u *unstructured.Unstructured, maxReplicas int32) {
	desired, err := r.kind.desired(u)
	most, mostErr := numberAt(u, r.kind.MaxPath)
	if r.status.MaxAllowedVReplicas != nil && (most == nil || *r.status.MaxAllowedVReplicas < *most) {
		most = r.status.MaxAllowedVReplicas
	}
	if err == nil && mostErr == nil {
		r.wanted, r.limited, err = placement.Wanted(desired, most, maxReplicas)
	}
	if err != nil || mostErr != nil {
		r.invalid, r.wanted = true, r.decided()
	}
	if u.GetDeletionTimestamp() != nil { // it waits for a finalizer of another program
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
