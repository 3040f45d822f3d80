package preserve

import (
	"slices"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
)

// Why is the reason that restricted labels are not put back.
type Why string

const (
	// Waiting means that the Node has not said which machine it is.
	Waiting Why = "waiting"
	// OtherMachine means that it is not the machine that they were saved from.
	OtherMachine Why = "other-machine"
	// UnknownMachine means that nobody knows which machine they were saved from.
	UnknownMachine Why = "unknown-machine"
	// Dropped means that restricted labels are never put back.
	Dropped Why = "dropped"

	// NoRoom means that a record has no room for so many withheld labels: they are forgotten.
	NoRoom Why = "no-room"

	// putBack means that they are put back.
	putBack Why = ""
)

// Held is restricted labels that a decision does not put back, and why.
type Held struct {
	Keys labels.Keys
	Why  Why
}

// restrictedOf returns the restricted labels that are not the machine's own: its agents set those
// again by themselves.
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

// GainsRestricted reports whether labels have restricted ones, which are not the machine's own, that
// they did not have before, or with another value.
func GainsRestricted(before, after map[string]string, machine labels.Keys) bool {
	for key, value := range restrictedOf(after, machine) {
		if former, isThere := before[key]; !isThere || former != value {
			return true
		}
	}
	return false
}

// concernsMachines reports whether a restore of a record depends on which machine has returned.
func concernsMachines(r *record.Record) bool {
	return r != nil && (len(r.Withheld) > 0 || HasRestricted(r.Labels, r.Machine))
}
