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

// MaxNumber is the maximum of decision numbers, epochs, and generations of contracts. It is the
// greatest integer that every JSON parser reads exactly, and as a time in milliseconds it is far in
// the future.
const MaxNumber = 1<<53 - 1

// maxShared bounds the indexes of all shares in a status, so that an edited status cannot stop a
// controller. Each index has one owner; the rest is for releases.
const maxShared = 2 * schedule.MaxIndexes

// ErrMalformedStatus is returned for a status that placement cannot have written.
var ErrMalformedStatus = errors.New("malformed status")

// Check returns [ErrMalformedStatus] if the indexes of a share are malformed, if all shares
// together have far more indexes than a resource may have, or if a number is negative or exceeds
// [MaxNumber]. Its cost depends on the size of the status only.
func (s *Status) Check() error {
	if s.Decision < 0 || s.Decision > MaxNumber {
		return fmt.Errorf("%w: decision %d", ErrMalformedStatus, s.Decision)
	}
	total := 0
	for _, shares := range [][]Placement{s.Placement, s.Releasing} {
		for i := range shares {
			p := &shares[i]
			count, err := schedule.CountSet(p.Indexes)
			if err != nil {
				return fmt.Errorf("%w: pod %q: %w", ErrMalformedStatus, p.PodName, err)
			}
			if total += count; total > maxShared {
				return fmt.Errorf("%w: more than %d indexes", ErrMalformedStatus, maxShared)
			}
			if p.Since < 0 || p.Since > MaxNumber {
				return fmt.Errorf("%w: pod %q: since %d", ErrMalformedStatus, p.PodName, p.Since)
			}
		}
	}
	return nil
}

// DefaultReplicas is the number of virtual replicas of a resource that does not specify one.
const DefaultReplicas = 1

// MaxReplicas is the highest number of virtual replicas that any resource may desire.
const MaxReplicas = schedule.MaxIndexes

// ErrInvalidReplicas is returned for a number of virtual replicas that is negative, malformed or
// too high. In that case, keep the last decision.
var ErrInvalidReplicas = errors.New("invalid number of virtual replicas")

// Wanted returns the number of virtual replicas to place: the desired number, but not more than
// most. It also reports whether most is the lower of the two; the excess is not pending. If desired
// is nil, it is [DefaultReplicas]. If most is nil, there is no limit. Wanted returns
// [ErrInvalidReplicas] if desired is negative or exceeds valid, which protects the pool; most does
// not change that. If valid is not in the range from 1 to [MaxReplicas], it is MaxReplicas.
func Wanted(desired, most *int32, valid int32) (n int32, limited bool, err error) {
	n = DefaultReplicas
	if desired != nil {
		n = *desired
	}
	if valid < 1 || valid > MaxReplicas {
		valid = MaxReplicas
	}
	if n < 0 || n > valid {
		return 0, false, fmt.Errorf("%w: %d is not a number from 0 to %d", ErrInvalidReplicas, n, valid)
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
