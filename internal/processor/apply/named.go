package apply

import (
	"slices"
	"strings"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
)

// maxNamed bounds the labels that are looked for in answers, since dry runs are lost if the answers
// name the wrong ones.
const maxNamed = 3

// named returns the labels that the API server names when it refuses the others together with them,
// given the refusal of all, if a dry run without them is accepted and one with each of them is
// refused. Otherwise it returns none. It takes two dry runs for each label.
func (s *search) named(refusal error) (refusals, error) {
	rest, err := s.withoutNamed(refusal)
	if err != nil || rest == nil {
		return nil, err
	}
	found := refusals{}
	for _, key := range s.keys {
		if slices.Contains(rest, key) {
			continue
		}
		// The policy may have changed since the refusal, or have been about something else.
		refusal, err := s.try(rest, []string{key})
		if err != nil || refusal == nil || isOfComponent(key, refusal) {
			return nil, err
		}
		found[key] = refusal
	}
	return found, nil
}

// withoutNamed returns the labels, without those that the answers name, that the API server accepts
// in a dry run. It returns nil if it finds none.
func (s *search) withoutNamed(refusal error) (rest []string, err error) {
	rest = slices.Clone(s.keys)
	for range maxNamed {
		key := onlyNamed(refusal, rest)
		if key == "" {
			return nil, nil
		}
		rest = slices.DeleteFunc(rest, func(other string) bool { return other == key })
		if refusal, err = s.try(nil, rest); err != nil || refusal == nil {
			return rest, err
		}
	}
	return nil, nil
}

// onlyNamed returns the only one of these labels, annotations and taints that a refusal names, or ""
// if it names none or several.
func onlyNamed(refusal error, keys []string) (only string) {
	words := wordsOf(refusal)
	for _, key := range keys {
		switch {
		case !words[nameOf(key)]:
		case only != "":
			return ""
		default:
			only = key
		}
	}
	return only
}

// nameOf returns the name that the API server uses for a label, an annotation or a taint.
func nameOf(key string) string {
	if annotation, ok := labels.AsAnnotation(key); ok {
		return annotation
	}
	if taint, _, ok := labels.AsTaint(key); ok {
		return taint
	}
	return key
}

// fieldPrefixes come before keys in the paths of fields.
var fieldPrefixes = []string{"metadata.labels.", "metadata.annotations.", "metadata/labels/", "metadata/annotations/"}

// wordsOf returns the words of a refusal that may be keys: those of its message and of its causes.
func wordsOf(refusal error) map[string]bool {
	texts := []string{refusal.Error()}
	if answer, ok := nodes.StatusOf(refusal); ok && answer.Details != nil {
		for _, cause := range answer.Details.Causes {
			texts = append(texts, cause.Field, cause.Message)
		}
	}
	words := map[string]bool{}
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(text, isNoKey) {
			word = strings.Trim(word, "-_./")
			for _, prefix := range fieldPrefixes {
				if _, key, found := strings.Cut(word, prefix); found {
					words[key] = true
				}
			}
			words[word] = true
		}
	}
	return words
}

// isNoKey reports whether no key of a label has this character.
func isNoKey(r rune) bool {
	isKeys := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./", r)
	return !isKeys
}
