package assignment

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionBalancedType is the condition that says whether all objects are where the table has them.
const conditionBalancedType = "Balanced"

// conditionBalanced returns that condition.
func conditionBalanced(generation int64, s state, isBalanced bool) metav1.Condition {
	c := metav1.Condition{Type: conditionBalancedType, ObservedGeneration: generation}
	switch {
	case s.late > 0:
		c.Status, c.Reason = metav1.ConditionFalse, "DrainTimeout"
		c.Message = fmt.Sprintf("%d objects have not been given away by their shards in time: see the label drain on them", s.late)
	case s.failing > 0:
		c.Status, c.Reason = metav1.ConditionFalse, "MovesFailing"
		c.Message = fmt.Sprintf("%d objects cannot be changed: see the log of the sharder", s.failing)
	case isBalanced:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Balanced", "every object is at the shard that the table has it at"
	case s.moving+s.found+s.unassigned > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Moving", "objects move, or wait for a shard"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotChecked", "a pass over all objects has not shown yet that nothing is left to move"
	}
	return c
}
