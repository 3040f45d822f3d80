package byhand

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

// LabelEdit is a change of labels, as in the arguments of kubectl label.
type LabelEdit struct {
	set    map[string]string
	remove []string
}

// ParseLabelEdit parses arguments of the forms key=value and key-, like kubectl label.
func ParseLabelEdit(args []string) (LabelEdit, error) {
	e := LabelEdit{set: map[string]string{}}
	for _, arg := range args {
		key, value, set := strings.Cut(arg, "=")
		if !set {
			var removed bool
			if key, removed = strings.CutSuffix(arg, "-"); !removed {
				return LabelEdit{}, fmt.Errorf("%q is not a change of a label: give key=value, or key- to remove one", arg)
			}
			e.remove = append(e.remove, key)
		} else {
			e.set[key] = value
		}
		if key == labels.Marker {
			return LabelEdit{}, fmt.Errorf("%s is nodekeeper's own label, and is never in a record", labels.Marker)
		}
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return LabelEdit{}, fmt.Errorf("%q is not a label key: %s", key, strings.Join(problems, "; "))
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return LabelEdit{}, fmt.Errorf("%q is not a label value: %s", value, strings.Join(problems, "; "))
		}
	}
	for _, key := range e.remove {
		if _, set := e.set[key]; set {
			return LabelEdit{}, fmt.Errorf("label %q is both set and removed: give only one of the two", key)
		}
	}
	if len(args) == 0 {
		return LabelEdit{}, errors.New("give what to change: key=value, or key- to remove a label")
	}
	return e, nil
}

// keys returns the keys that the edit sets or removes.
func (e LabelEdit) keys() labels.Keys {
	return labels.KeysOf(maps.Keys(e.set)).Union(labels.KeysOf(slices.Values(e.remove)))
}

// Of returns labels after the edit. Changing an existing value is an error unless overwrite is set.
func (e LabelEdit) Of(before map[string]string, overwrite bool) (map[string]string, error) {
	after := maps.Clone(before)
	for _, key := range slices.Sorted(maps.Keys(e.set)) {
		if value, ok := before[key]; ok && value != e.set[key] && !overwrite {
			return nil, fmt.Errorf("label %q has the value %q already: give --overwrite to change it", key, value)
		}
		after[key] = e.set[key]
	}
	for _, key := range e.remove {
		delete(after, key)
	}
	return after, nil
}
