package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/placement/schedule"
)

// Pool configures a pool: the pods whose agents name it, and the resources that they work on.
type Pool struct {
	// Name is the value of the label on Leases and contracts.
	Name string
	// Namespace is the namespace of the Leases, the contracts and the resources.
	Namespace string
	// StatefulSet is the name of the StatefulSet of the pods. It may be empty: then no pod is awaited
	// when it ends, and none is leaving because there are fewer replicas.
	StatefulSet string
	// Patience is how long the work of a pod of the StatefulSet waits for the pod to return under
	// its name, from the first sign that it has ended.
	Patience time.Duration
	// Overlap lets the former owner of a virtual replica work until the new one does, for work that
	// may be done twice.
	Overlap bool
	// Capacity is the maximum load of a pod that does not set its own. Zero means no limit.
	Capacity int32
	Strategy schedule.Strategy
	// Tolerance is the difference of loads up to which nothing is rebalanced.
	Tolerance int32
	// Rebalance is the maximum number of virtual replicas that are moved at a time to even out the
	// load. Zero means that nothing is moved for that.
	Rebalance int32
	// KeepEnded is for how long the Lease and the contract of a pod that has ended, and that no
	// decision names any longer, stay.
	KeepEnded time.Duration
	// MaxReplicas is the highest valid number of virtual replicas of a resource.
	MaxReplicas int32
	Kinds       []Kind
}

// Kind configures a kind of resources. Paths are the names of nested fields; MaxPath, WeightPath
// and PayloadPath may be empty.
type Kind struct {
	schema.GroupVersionKind

	// ReplicasPath leads to the desired number of virtual replicas.
	ReplicasPath []string
	// AnnotationPrefix is the prefix of the annotations with the desired number, in the metadata,
	// and with the decision, in the status, as [placement.Annotations] has them. If it is empty,
	// the paths lead to both. ReplicasPath must be empty otherwise.
	AnnotationPrefix string
	// MaxPath leads to an upper limit of that number, besides that in the status.
	MaxPath []string
	// WeightPath leads to the load of one virtual replica.
	WeightPath []string
	// PayloadPath leads to what the contracts carry to the pods.
	PayloadPath []string
	// StatusPath leads to the object with the fields of placement.Status. A kind with an
	// AnnotationPrefix has only annotations there, and may have readyVReplicas and conditions. The
	// types of its conditions begin with Placement.
	StatusPath []string
}

func (p *Pool) policy() schedule.Policy {
	return schedule.Policy{Strategy: p.Strategy, Tolerance: p.Tolerance, Capacity: p.Capacity}
}
