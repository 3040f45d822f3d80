package apply

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RefusedError means that the API server or an admission plugin refused a restore, because of its
// content or of its sender.
type RefusedError struct {
	Node string
	UID  types.UID
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("restoring the labels of node %q: %v", e.Node, e.Err)
}
func (e *RefusedError) Unwrap() error { return e.Err }

// UnreadableError means that the record of a node cannot be read. The node's transactions wait
// until a user corrects or deletes the record.
type UnreadableError struct {
	Object *corev1.ConfigMap
	Err    error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("reading the record of node %q: %v", e.Object.Name, e.Err)
}
func (e *UnreadableError) Unwrap() error { return e.Err }
