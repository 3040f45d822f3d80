package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
)

// Why is the reason why restricted labels are not restored.
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

// Held are restricted labels that a decision does not restore, and the reason.
type Held struct {
	Keys labels.Keys
	Why  Why
}

// restrictedOf returns the restricted labels that are not the machine's own. The machine's agents
// set their labels themselves.
func restrictedOf(own map[string]string, machine labels.Keys) map[string]string {
	var found map[string]string
	for key, value := range own {
		if labels.Restricted(key) && !slices.Contains(slices.Collect(machine.All()), key) {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}

// HasRestricted reports whether there are restricted labels that are not the machine's own.
func HasRestricted(own map[string]string, machine labels.Keys) bool {
	return len(restrictedOf(own, machine)) > 0
}

// GainsRestricted reports whether a restricted label that is not the machine's own was added or
// changed.
func GainsRestricted(before, after map[string]string, machine labels.Keys) bool {
	for key, value := range restrictedOf(after, machine) {
		if former, isThere := before[key]; !isThere || former != value {
			return true
		}
	}
	return false
}

// concernsMachines reports whether a restore of a record depends on the identity of the returned
// machine.
func concernsMachines(r *record.Record) bool {
	return r != nil && (len(r.Withheld) > 0 || HasRestricted(r.Labels, r.Machine))
}
