package apply

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/internal/labels"
)

// maxNamed bounds the labels that are looked for in answers, since dry runs are lost if the answers
// name the wrong ones.
const maxNamed = 3

// named returns the labels that the API server names when it refuses the others together with them,
// given the refusal of all: those without which it accepts the rest. It returns none if there are no
// such labels. It takes one dry run for each of them.
func (s *search) named(refusal error) (refusals, error) {
	found, rest := refusals{}, s.keys
	for range maxNamed {
		key := onlyNamed(refusal, rest)
		if key == "" || isOfComponent(key, refusal) {
			return nil, nil
		}
		found[key] = refusal
		rest = slices.DeleteFunc(slices.Clone(rest), func(other string) bool { return other == key })
		next, err := s.try(nil, rest)
		switch {
		case err != nil:
			return nil, err
		case next == nil:
			return found, nil
		}
		refusal = next
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

// nameOf returns the name by which the API server knows a label, an annotation or a taint.
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
	var answer apierrors.APIStatus // an interface without Error, so errors.AsType does not accept it
	if errors.As(refusal, &answer) {
		if details := answer.Status().Details; details != nil {
			for _, cause := range details.Causes {
				texts = append(texts, cause.Field, cause.Message)
			}
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
