package labels

import "fmt"

// Mode determines what a restore does with labels that only the live node has.
type Mode string

const (
	// Replace makes the node's labels equal to the saved ones, except for live labels.
	Replace Mode = "replace"
	// Merge adds the saved labels and keeps labels that only the node has.
	Merge Mode = "merge"
)

// ParseMode returns the mode with that name, or an error that lists the valid names.
func ParseMode(name string) (Mode, error) {
	switch mode := Mode(name); mode {
	case Replace, Merge:
		return mode, nil
	}
	return "", fmt.Errorf("unknown mode %q: use %q or %q", name, Replace, Merge)
}

// Policy determines which labels a restore writes. The zero value is not valid: Mode must be set.
type Policy struct {
	Mode Mode
	// Live selects labels that describe the machine itself. If the new incarnation has such a
	// label, its value wins. Empty selects none.
	Live Patterns
	// Ignored selects labels that are never restored.
	Ignored Patterns
	// Preserves reports whether the annotation or taint with this key is restored. Nil restores
	// none.
	Preserves func(key string) bool
	// Restricted determines what happens to restricted labels that no pattern of MachineBound
	// matches; [Drop] applies to all restricted labels.
	Restricted RestrictedMode
	// MachineBound selects the labels that belong to a machine.
	MachineBound MachineBound
}

// ModeOf returns what a restore does with a label, regardless of who set it.
func (p Policy) ModeOf(key string) RestrictedMode {
	switch {
	case p.drops(key):
		return Drop
	case p.MachineBound.patterns.Match(key), Restricted(key) && p.Restricted != Keep:
		return SameMachine
	}
	return Keep
}

// Side is one side of a restore: the labels of the returned node, or the saved ones, and their
// ownership. The maps never contain the marker.
type Side struct {
	Labels map[string]string
	// Machine are the keys that only the machine's agents set.
	Machine Keys
	// Unclear are the keys whose setter is unknown. They are disjoint from Machine.
	Unclear Keys
	// Overruled are keys that agents had set and that a user has changed or removed. Only the saved
	// side has them.
	Overruled Keys
	// Edited are keys that users have set or removed since the node was created, so they stay as they
	// are. Only the live side has them.
	Edited Keys
	// Copied are the keys of Machine that someone else has set to the same value when creating the
	// Node from a copy. Only the saved side has them.
	Copied Keys
	// Withheld are keys that are saved separately from Labels, because they are not restored onto
	// this machine. Only the saved side has them.
	Withheld Keys
}

// Restored returns the labels of a node after a restore, given its live and its saved labels. The
// table in docs/design.md ("The labels of a restore") has the rules for each key, in order. In
// short: live labels stay as the node has them, labels that users had set are restored, and labels
// that agents of the returned machine have set stay, unless a user had overruled them. So do labels
// without a known setter, such as those of an admission policy, unless a user is known to have set
// them before. Labels that only agents of the former machine had set are not restored. A restricted
// label that is not restored stays as the node has it, because it was set by others. So does a label
// that patterns of MachineBound match: that the former machine did not have it means nothing for
// this one. Annotations and taints of the node stay, unless a user had overruled them. What users
// have edited on the returned node stays.
func (p Policy) Restored(live, saved Side) map[string]string {
	result := make(map[string]string, len(live.Labels)+len(saved.Labels))
	former, unclear, overruled := saved.Machine.Set(), saved.Unclear.Set(), saved.Overruled.Set()
	edited := live.Edited.Set()
	for key, value := range saved.Labels {
		if !former[key] && !edited[key] && !p.Ignored.Match(key) && !p.drops(key) && p.Has(key) {
			result[key] = value
		}
	}
	withheld := saved.Withheld.Set()
	claimed := live.Machine.Union(live.Unclear).Set()
	for key, value := range live.Labels {
		_, wished := result[key]
		switch {
		case edited[key], p.Live.Match(key), claimed[key] && unclear[key] && !overruled[key]:
			result[key] = value
		case wished:
		case withheld[key], p.drops(key), p.MachineBound.patterns.Match(key) && !overruled[key]:
			result[key] = value
		case (claimed[key] || former[key] || !IsLabel(key)) && !overruled[key], p.Mode == Merge:
			result[key] = value
		}
	}
	return result
}

// Has reports whether a key belongs to a label, or to an annotation or a taint that is restored.
func (p Policy) Has(key string) bool { return IsLabel(key) || p.Preserves != nil && p.Preserves(key) }

// drops reports whether a label is restricted and never restored.
func (p Policy) drops(key string) bool { return p.Restricted == Drop && Restricted(key) }
