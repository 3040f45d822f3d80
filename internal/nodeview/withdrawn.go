package nodeview

import (
	"nodekeeper.dev/internal/labels"
)

// Withdrawn returns the keys of labels that disappeared between two consecutive states of a Node in
// which agents wrote to it, so that the agents may have removed their labels themselves. The API
// server does not record who removed a label, and its times are whole seconds. If there is no sign
// that an agent wrote, the result is empty: a user removed them. The result includes taints whose
// value changed, because the API server does not record who changed a taint. A controller that no
// longer claims a label has withdrawn it.
func Withdrawn(before, after *Node) labels.Keys {
	if !haveWritten(before, after) {
		return gone(unclaimed(before, after), before, after)
	}
	return gone(before.Machine.Union(before.Unclear), before, after)
}

// Removed returns the keys of the machine's labels that disappeared between two consecutive states
// of a Node, except those that agents may have withdrawn: a user removed them. It includes taints
// whose value changed, and taints whose setter is unknown.
func Removed(before, after *Node) labels.Keys {
	if haveWritten(before, after) {
		return ""
	}
	return gone(before.Machine.Union(before.Unclear.Taints()).Without(unclaimed(before, after)), before, after)
}

// unclaimed returns the machine's labels that a controller claimed and no longer claims.
func unclaimed(before, after *Node) labels.Keys {
	if before.Claimed == after.Claimed {
		return ""
	}
	return before.Machine.Where(func(key string) bool { return before.Claims(key) && !after.Claims(key) })
}

// gone returns the keys that are absent from after, and those of taints whose value differs.
func gone(keys labels.Keys, before, after *Node) labels.Keys {
	return keys.Where(func(key string) bool {
		value, isThere := after.Labels[key]
		return !isThere || labels.IsTaint(key) && value != before.Labels[key]
	})
}

// haveWritten reports whether agents have written to a Node between two states of it. Earlier times
// in the later state mean that the API server has dropped a manager.
func haveWritten(before, after *Node) bool {
	if after.ActedAt.After(before.ActedAt) {
		return true
	}
	for key := range after.Machine.All() { // in the same second
		if value, wasThere := before.Labels[key]; !wasThere || value != after.Labels[key] {
			return true
		}
	}
	return false
}
