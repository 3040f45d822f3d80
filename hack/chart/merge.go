package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"nodekeeper.dev/hack/manifests"
)

// templates returns the templates of the chart by name.
func templates(tree *manifests.Tree) (map[string][]byte, error) {
	m := &markers{}
	variants := map[set]*rendered{}
	var order []string
	sources := map[string]string{}
	for _, s := range pairs() {
		r, err := render(tree, s, m)
		if err != nil {
			return nil, err
		}
		variants[s] = r
		for _, key := range r.order {
			if _, known := sources[key]; !known {
				order = append(order, key)
				sources[key] = r.sources[key]
			}
		}
	}
	texts := map[string][]string{}
	for _, key := range order {
		lines, err := template(key, variants)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		name := fileOf(sources[key])
		if texts[name] == nil {
			texts[name] = []string{raw + "{{- /* Made by make generate from deploy/" + sources[key] + ": edit that. */}}"}
		}
		texts[name] = join(texts[name], lines)
	}
	files := map[string][]byte{}
	for name, lines := range texts {
		for _, line := range lines {
			for _, resolved := range m.resolve(line) {
				files[name] = append(files[name], resolved+"\n"...)
			}
		}
	}
	return files, nil
}

// join appends the lines of an object to those of others. If the last condition of lines equals the
// first condition of more, it is written once.
func join(lines, more []string) []string {
	for i := len(lines) - 1; i >= 0 && lines[len(lines)-1] == end && strings.HasPrefix(more[0], raw); i-- {
		if strings.HasPrefix(lines[i], raw+"{{- if ") && i+1 < len(lines) && lines[i+1] == separator {
			if lines[i] == more[0] {
				return append(lines[:len(lines)-1], more[1:]...)
			}
			break
		}
	}
	return append(lines, more...)
}

// Lines of templates.
const (
	separator = "---"
	end       = raw + "{{- end }}"
)

func begin(condition string) string { return raw + "{{- if " + condition + " }}" }

// fileOf returns the template for the objects of a file under deploy: templates/quota.yaml for
// base/quota.yaml, and templates/admission-rbac.yaml for components/admission/rbac.yaml.
func fileOf(source string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(source, "base/"), "components/")
	return path.Join("templates", strings.ReplaceAll(strings.ReplaceAll(name, "kustomization", "generated"), "/", "-"))
}

// template returns the lines of an object, with the conditions of its features. They begin with a
// condition if some sets lack the object.
func template(key string, variants map[set]*rendered) ([]string, error) {
	least, conditions, err := presence(key, variants)
	if err != nil {
		return nil, err
	}
	lines := []string{separator}
	if len(conditions) > 0 {
		lines = []string{begin(and(conditions)), separator}
	}
	merged, err := merge(key, least, variants)
	if err != nil {
		return nil, err
	}
	lines = append(lines, merged...)
	if len(conditions) > 0 {
		lines = append(lines, end)
	}
	return lines, nil
}

// conditionOfKind holds the conditions that do not come from a feature.
var conditionOfKind = map[string]string{
	"Namespace":     ".Values.namespaces.create",
	"NetworkPolicy": ".Values.networkPolicy.enabled",
}

// presence returns the smallest set that contains an object, and the conditions under which a set
// contains it.
func presence(key string, variants map[set]*rendered) (least set, conditions []string, err error) {
	all, none := ^set(0), ^set(0) // the features enabled in all sets that contain the object, and in none of them
	for s, r := range variants {
		if r.texts[key] != nil {
			all &= s
			none &= ^s
		}
	}
	for s, r := range variants {
		if has := s&all == all && s&none == 0; has != (r.texts[key] != nil) {
			return 0, nil, fmt.Errorf("whether it exists with %v does not depend on each feature by itself", s.paths())
		}
	}
	if variants[all] == nil {
		return 0, nil, errors.New("it needs more than two features")
	}
	kind, _, _ := strings.Cut(key, "/")
	if own := conditionOfKind[kind]; own != "" {
		conditions = append(conditions, own)
	}
	for i, f := range features {
		switch {
		case all.has(i):
			conditions = append(conditions, f.condition)
		case none.has(i):
			conditions = append(conditions, not(f.condition))
		}
	}
	return all, conditions, nil
}

// hunk is the change that a feature makes at a line of the least text.
type hunk struct {
	feature  int
	removes  int
	replaces []string
}

// hunksOf returns the changes that a feature makes in an object, by line of its least text.
func hunksOf(feature int, key string, least set, variants map[set]*rendered) (map[int]hunk, error) {
	base := variants[least].texts[key]
	on := variants[least.with(feature).closed()]
	if least.has(feature) || on == nil || on.texts[key] == nil {
		return nil, nil
	}
	text := on.texts[key]
	if off := least.with(feature).closed() &^ (1 << feature); off != least {
		// It must change nothing in addition to the features that it needs.
		if !slices.Equal(variants[off].texts[key], text) {
			return nil, fmt.Errorf("%s changes it, and so would need a condition within that of %s", features[feature].path, features[feature].needs)
		}
		return nil, nil
	}
	hunks := map[int]hunk{}
	for _, op := range difflib.NewMatcherWithJunk(base, text, false, nil).GetOpCodes() {
		from, lines := op.I1, text[op.J1:op.J2]
		switch op.Tag {
		case 'e':
			continue
		case 'i':
			// Move the insertion down as far as possible, so that text inserted into a list is a
			// complete element.
			for ; from < len(base) && base[from] == lines[0]; from++ {
				lines = append(slices.Clone(lines[1:]), lines[0])
			}
		}
		hunks[from] = hunk{feature, op.I2 - op.I1, lines}
	}
	return hunks, nil
}

// merge returns the lines of an object, with conditions around the lines that a feature adds or
// removes.
func merge(key string, least set, variants map[set]*rendered) ([]string, error) {
	base := variants[least].texts[key]
	hunks := map[int][]hunk{}
	for i := range features {
		changes, err := hunksOf(i, key, least, variants)
		if err != nil {
			return nil, err
		}
		for line, change := range changes {
			hunks[line] = append(hunks[line], change)
		}
	}
	var lines []string
	at := 0
	for _, from := range slices.Sorted(maps.Keys(hunks)) {
		if from < at {
			return nil, fmt.Errorf("two features change line %d: %s", from, base[from])
		}
		lines = append(lines, base[at:from]...)
		at = from
		for _, h := range hunks[from] {
			if h.removes > 0 && at > from {
				return nil, fmt.Errorf("two features change line %d: %s", from, base[from])
			}
			at = from + h.removes
			lines = append(lines, conditional(features[h.feature].condition, h.replaces, base[from:at])...)
		}
	}
	return append(lines, base[at:]...), nil
}

// conditional returns lines that depend on a condition: then if it holds, otherwise if not.
func conditional(condition string, then, otherwise []string) []string {
	if len(then) == 0 {
		condition, then, otherwise = not(condition), otherwise, nil
	}
	lines := append([]string{begin(condition)}, then...)
	if len(otherwise) > 0 {
		lines = append(append(lines, raw+"{{- else }}"), otherwise...)
	}
	return append(lines, end)
}

func not(condition string) string {
	if positive, negative := strings.CutPrefix(condition, "not "); negative {
		return positive
	}
	return "not " + condition
}

// and returns a condition that holds if all of them hold.
func and(conditions []string) string {
	if len(conditions) == 1 {
		return conditions[0]
	}
	all := []string{"and"}
	for _, one := range conditions {
		if strings.Contains(one, " ") {
			one = "(" + one + ")"
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}
