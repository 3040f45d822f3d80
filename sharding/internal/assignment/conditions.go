package assignment

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/internal/ring"
)

// conditionBalancedType is the type of the condition that reports whether all objects are where the
// table places them.
const conditionBalancedType = "Balanced"

// conditionBalanced returns the Balanced condition.
func conditionBalanced(generation int64, s state, isBalanced bool) metav1.Condition {
	c := metav1.Condition{Type: conditionBalancedType, ObservedGeneration: generation}
	switch {
	case s.failing > 0:
		c.Status, c.Reason = metav1.ConditionFalse, ring.MovesFailing
		c.Message = fmt.Sprintf("writes to %d objects fail (see the log of the sharder), for example: %s", s.failing, s.failure)
	case s.late > 0:
		c.Status, c.Reason = metav1.ConditionFalse, "DrainTimeout"
		c.Message = fmt.Sprintf("the shards of %d objects have not released them in time: see their drain labels", s.late)
	case isBalanced:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Balanced", "the last resync found every object at the shard that the table has it at"
	case s.moving+s.found+s.unassigned > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Moving", "objects are moving or waiting for a shard"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotChecked", "no resync of all objects has confirmed yet that nothing is left to move"
	}
	return c
}
