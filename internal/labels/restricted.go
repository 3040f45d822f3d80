package labels

import (
	"fmt"
	"strings"
)

// RestrictedMode determines what a restore does with restricted labels, see [Restricted], and with
// other labels, see [Policy.ModeOf].
type RestrictedMode string

const (
	// SameMachine restores them onto the machine that they were saved from, and withholds them from
	// any other. It is also the meaning of the zero value.
	SameMachine RestrictedMode = "same-machine"
	// Keep restores them like any other label.
	Keep RestrictedMode = "keep"
	// Drop never restores them, and drops them from the record.
	Drop RestrictedMode = "drop"
)

// ParseRestrictedMode returns the mode with that name, or an error that lists the valid names.
func ParseRestrictedMode(name string) (RestrictedMode, error) {
	switch mode := RestrictedMode(name); mode {
	case SameMachine, Keep, Drop:
		return mode, nil
	}
	return "", fmt.Errorf("unknown mode %q: use %q, %q or %q", name, Keep, Drop, SameMachine)
}

const (
	nodeRestriction = "node-restriction.kubernetes.io"
	nodeRole        = "node-role.kubernetes.io"
)

// NodeRestriction reports whether kubelets may not set a label on their own Nodes, because the
// admission plugin NodeRestriction reserves its namespace.
func NodeRestriction(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	return found && IsLabel(key) && (namespace == nodeRestriction || strings.HasSuffix(namespace, "."+nodeRestriction))
}

// Restricted reports whether other programs trust a label because kubelets may not set it on their
// own Nodes. A machine must not get such a label by taking the name of another one.
func Restricted(key string) bool {
	return NodeRestriction(key) || strings.HasPrefix(key, nodeRole+"/")
}
