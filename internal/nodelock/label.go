package nodelock

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Label and LabelValue mark a Lease as the lock of a node.
const (
	Label      = "nodekeeper.dev/lock"
	LabelValue = "node"
)

// locks selects the locks of nodes.
var locks = client.MatchingLabels{Label: LabelValue}

// IsLock reports whether a Lease of the transaction namespace is the lock of a node. A Lease
// without the label is a lock if it has the form that versions before the label created: no labels,
// annotations, owners or finalizers, and exactly [LeaseDuration].
func IsLock(l *coordinationv1.Lease) bool {
	if value, ok := l.Labels[Label]; ok {
		return value == LabelValue
	}
	seconds := l.Spec.LeaseDurationSeconds
	return len(l.Labels)+len(l.Annotations)+len(l.OwnerReferences)+len(l.Finalizers) == 0 &&
		seconds != nil && *seconds == int32(LeaseDuration/time.Second)
}
