package placement

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement/schedule"
)

// Placeable is embedded in the status of a resource whose virtual replicas are placed. Its names, and
// those of the first two fields of Placement, are the same as in Knative.
type Placeable struct {
	// MaxAllowedVReplicas limits how many virtual replicas are placed, for example the number of
	// partitions; nil: no limit.
	MaxAllowedVReplicas *int32 `json:"maxAllowedVReplicas,omitempty"`
	// Placement has the shares: what each pod has.
	Placement []Placement `json:"placements,omitempty"`
}

// Placement is a share: the virtual replicas of one resource on one incarnation of a pod.
type Placement struct {
	PodName   string `json:"podName,omitempty"`
	VReplicas int32  `json:"vreplicas,omitempty"`
	// Incarnation is one holder of the pod's Lease. It is compared as an opaque string.
	Incarnation string `json:"incarnation,omitempty"`
	// Indexes are those of the virtual replicas, like "0-2,7".
	Indexes string `json:"indexes,omitempty"`
	// Since is the number of the decision that last changed this share.
	Since int64 `json:"since,omitempty"`
}

// Status is what placement writes into the status of a resource.
type Status struct {
	Placeable `json:",inline"`
	// Releasing has the shares that were taken from incarnations which may still work on them.
	Releasing []Placement `json:"releasing,omitempty"`
	// Decision is the number of the decision: who owns which index, and who releases which. Each change
	// has a greater number.
	Decision int64 `json:"decision,omitempty"`
	// ObservedGeneration is the generation of the resource that the decision takes account of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReadyVReplicas counts the virtual replicas that are worked on.
	ReadyVReplicas int32 `json:"readyVReplicas,omitempty"`
	// Conditions are Scheduled, Acknowledged and Ready.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DefaultReplicas is how many virtual replicas a resource wants that does not say how many.
const DefaultReplicas = 1

// ErrInvalidReplicas is returned for a number of virtual replicas that is negative or malformed. The last
// decision stays as it is then.
var ErrInvalidReplicas = errors.New("invalid number of virtual replicas")

// Wanted returns how many virtual replicas to place: the desired number, at most the limit. It reports
// whether the limit is lower; virtual replicas above it are not pending. If desired is nil, it counts as
// [DefaultReplicas].
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

// Set returns the indexes of a share. A share that only has a number, as Knative writes it, has
// none.
func (p *Placement) Set() (schedule.Set, error) {
	set, err := schedule.ParseSet(p.Indexes)
	if err != nil {
		return nil, fmt.Errorf("reading the indexes of pod %q: %w", p.PodName, err)
	}
	return set, nil
}
