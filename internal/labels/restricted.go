package labels

import (
	"fmt"
	"strings"
)

// RestrictedMode is what a restore does with the restricted labels, see [Restricted].
type RestrictedMode string

const (
	// SameMachine puts them back onto the machine that they were saved from, and withholds them from
	// any other. It is also the meaning of the zero value.
	SameMachine RestrictedMode = "same-machine"
	// Keep puts them back as any other label.
	Keep RestrictedMode = "keep"
	// Drop leaves them out of every restore, and forgets them.
	Drop RestrictedMode = "drop"
)

// ParseRestrictedMode returns the mode of that name, or an error that lists the names.
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

// NodeRestriction reports whether no kubelet may set a label on its own Node: the admission plugin
// NodeRestriction keeps this namespace and its subdomains for others.
func NodeRestriction(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	return found && IsLabel(key) && (namespace == nodeRestriction || strings.HasSuffix(namespace, "."+nodeRestriction))
}

// Restricted reports whether others trust a label, so that a machine must not get it by taking the
// name of another one: no kubelet may set it on its own Node.
func Restricted(key string) bool {
	return NodeRestriction(key) || strings.HasPrefix(key, nodeRole+"/")
}
