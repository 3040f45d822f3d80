package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/internal/labels"
)

// labelEdit is what arguments like those of kubectl label ask for.
type labelEdit struct {
	set    map[string]string
	remove []string
}

// parseLabelEdit reads key=value and key- arguments, by the rules of kubectl label.
func parseLabelEdit(args []string) (labelEdit, error) {
	e := labelEdit{set: map[string]string{}}
	for _, arg := range args {
		key, value, isSet := strings.Cut(arg, "=")
		if !isSet {
			var isRemoved bool
			if key, isRemoved = strings.CutSuffix(arg, "-"); !isRemoved {
				return labelEdit{}, fmt.Errorf("%q is no change of a label: give key=value, or key- to remove one", arg)
			}
			e.remove = append(e.remove, key)
		} else {
			e.set[key] = value
		}
		if key == labels.Marker {
			return labelEdit{}, fmt.Errorf("%s is nodekeeper's own label, and is in no record", labels.Marker)
		}
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return labelEdit{}, fmt.Errorf("%q is no label key: %s", key, strings.Join(problems, "; "))
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return labelEdit{}, fmt.Errorf("%q is no label value: %s", value, strings.Join(problems, "; "))
		}
	}
	for _, key := range e.remove {
		if _, isSet := e.set[key]; isSet {
			return labelEdit{}, fmt.Errorf("label %q is both set and removed: do one of it", key)
		}
	}
	if len(args) == 0 {
		return labelEdit{}, errors.New("give what to change: key=value, or key- to remove a label")
	}
	return e, nil
}

// of returns labels after the edit. Another value is not taken for one that is there, unless it may be overwritten.
func (e labelEdit) of(before map[string]string, mayOverwrite bool) (map[string]string, error) {
	after := maps.Clone(before)
	for _, key := range slices.Sorted(maps.Keys(e.set)) {
		if value, ok := before[key]; ok && value != e.set[key] && !mayOverwrite {
			return nil, fmt.Errorf("label %q has the value %q already: give --overwrite to change it", key, value)
		}
		after[key] = e.set[key]
	}
	for _, key := range e.remove {
		delete(after, key)
	}
	return after, nil
}
