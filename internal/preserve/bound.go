package preserve

import (
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
)

// Why is the reason why labels that belong to a machine are not restored.
type Why string

const (
	// Waiting means that the Node has not reported its identity.
	Waiting Why = "waiting"
	// OtherMachine means that the Node is not the machine that the labels were saved from.
	OtherMachine Why = "other-machine"
	// UnknownMachine means that the machine that the labels were saved from is unknown.
	UnknownMachine Why = "unknown-machine"
	// Dropped means that the policy never restores restricted labels.
	Dropped Why = "dropped"

	// NoRoom means that a record has no room for so many withheld labels, so they are dropped.
	NoRoom Why = "no-room"

	// granted means that the labels are restored.
	granted Why = ""
)

// Held are labels of a machine that a decision does not restore, and the reason.
type Held struct {
	Keys labels.Keys
	Why  Why
}

// boundOf returns the labels that belong to a machine and that its agents have not set. The agents
// set their labels themselves.
func boundOf(own map[string]string, agents labels.Keys, bound labels.MachineBound) map[string]string {
	var found map[string]string
	for key, value := range own {
		if bound.Match(key) {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	if len(found) > 0 {
		for key := range agents.All() {
			delete(found, key)
		}
	}
	return found
}

// hasBound reports whether there are labels that belong to a machine and that its agents have not
// set.
func hasBound(own map[string]string, agents labels.Keys, bound labels.MachineBound) bool {
	return len(boundOf(own, agents, bound)) > 0
}

// GainsBound reports whether a label that belongs to a machine and that its agents have not set was
// added or changed.
func GainsBound(before, after map[string]string, agents labels.Keys, bound labels.MachineBound) bool {
	for key, value := range boundOf(after, agents, bound) {
		if former, isThere := before[key]; !isThere || former != value {
			return true
		}
	}
	return false
}

// concernsMachines reports whether a restore of a record depends on the identity of the returned
// machine.
func concernsMachines(r *record.Record, bound labels.MachineBound) bool {
	return r != nil && (len(r.Withheld) > 0 || hasBound(r.Labels, r.Machine, bound))
}
