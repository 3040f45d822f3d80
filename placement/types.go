package placement

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement/schedule"
)

// Placeable is embedded in the status of a resource whose virtual replicas are placed. Its JSON
// names, and the names of the first two fields of Placement, are the same as in Knative.
type Placeable struct {
	// MaxAllowedVReplicas limits the number of virtual replicas that are placed, for example to the
	// number of partitions. If nil, there is no limit.
	MaxAllowedVReplicas *int32 `json:"maxAllowedVReplicas,omitempty"`
	// Placement lists the shares of the pods.
	Placement []Placement `json:"placements,omitempty"`
}

// Placement is a share: the virtual replicas of one resource on one incarnation of a pod.
type Placement struct {
	PodName   string `json:"podName,omitempty"`
	VReplicas int32  `json:"vreplicas,omitempty"`
	// Incarnation identifies one holder of the pod's Lease. It is an opaque string.
	Incarnation string `json:"incarnation,omitempty"`
	// Indexes are the indexes of the virtual replicas, in the form "0-2,7".
	Indexes string `json:"indexes,omitempty"`
	// Since is the number of the decision that last changed this share.
	Since int64 `json:"since,omitempty"`
}

// Status is the part of a resource's status that placement writes.
type Status struct {
	Placeable `json:",inline"`
	// Releasing lists the shares that were taken from incarnations which may still be working on
	// them.
	Releasing []Placement `json:"releasing,omitempty"`
	// Decision is the number of the decision, which determines the owners of the indexes and the
	// incarnations that release some. It increases with every change.
	Decision int64 `json:"decision,omitempty"`
	// ObservedGeneration is the generation of the resource on which the decision is based.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReadyVReplicas is the number of virtual replicas that are being worked on.
	ReadyVReplicas int32 `json:"readyVReplicas,omitempty"`
	// Conditions are Scheduled, Acknowledged and Ready.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DefaultReplicas is the number of virtual replicas of a resource that does not specify one.
const DefaultReplicas = 1

// ErrInvalidReplicas is returned for a number of virtual replicas that is negative or malformed. In
// that case, keep the last decision.
var ErrInvalidReplicas = errors.New("invalid number of virtual replicas")

// Wanted returns the number of virtual replicas to place: the desired number, but not more than
// most. It also reports whether most is the lower of the two; the excess is not pending. If desired
// is nil, it is [DefaultReplicas]. If most is nil, there is no limit. Wanted returns
// [ErrInvalidReplicas] if desired is negative.
func Wanted(desired, most *int32) (n int32, limited bool, err error) {
	n = DefaultReplicas
	if desired != nil {
		n = *desired
	}
	if n < 0 {
		return 0, false, fmt.Errorf("%w: %d", ErrInvalidReplicas, n)
	}
	if most != nil && n > max(*most, 0) {
		return max(*most, 0), true, nil
	}
	return n, false, nil
}

// Set returns the indexes of a share. It is empty for a share that has only a number of virtual
// replicas, as written by Knative.
func (p *Placement) Set() (schedule.Set, error) {
	set, err := schedule.ParseSet(p.Indexes)
	if err != nil {
		return nil, fmt.Errorf("parsing the indexes of pod %q: %w", p.PodName, err)
	}
	return set, nil
}
