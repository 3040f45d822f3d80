package record

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// RefusalsAnnotation has why labels were refused, as a JSON object. It is an annotation of its own
	// since releases without it accept no other fields in [WithheldAnnotation].
	RefusalsAnnotation = "nodekeeper.dev/refusals"

	// maxRefusalBytes bounds one reason, and maxRefusalsBytes all of a record.
	maxRefusalBytes  = 400
	maxRefusalsBytes = 8 << 10
)

// Refusal returns a message of the API server as a reason for [Withheld.Refusals]: one line, of a
// bounded length.
func Refusal(message string) string {
	text := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, message)), " ")
	if len(text) <= maxRefusalBytes {
		return text
	}
	const more = "…"
	end := maxRefusalBytes - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// ByRefusal divides a set of refused labels into sets that were refused for the same reason.
func (w Withheld) ByRefusal() []Withheld {
	byReason := map[string]map[string]string{}
	for key, value := range w.Labels {
		reason := w.Refusals[key]
		if byReason[reason] == nil {
			byReason[reason] = map[string]string{}
		}
		byReason[reason][key] = value
	}
	var all []Withheld
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		w.Labels = byReason[reason]
		all = append(all, w)
	}
	return all
}

// formatRefusals returns the reasons of the labels that are refused, as far as there is room.
func formatRefusals(sets []Withheld) string {
	reasons, size := map[string]string{}, 0
	for _, w := range sets {
		if !w.State.IsRefused() {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(w.Labels)) {
			reason := w.Refusals[key]
			if size += len(key) + len(reason); reason != "" && size <= maxRefusalsBytes {
				reasons[key] = reason
			}
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(reasons) != nil {
		return "" // unreachable: it contains only strings
	}
	return strings.TrimSpace(text.String())
}

// setRefusals sets the reasons of the labels that are refused. A text that cannot be read has none.
func setRefusals(sets []Withheld, text string) {
	if text == "" {
		return
	}
	var reasons map[string]string
	if json.Unmarshal([]byte(text), &reasons) != nil {
		return
	}
	for i, w := range sets {
		if !w.State.IsRefused() {
			continue
		}
		for key := range w.Labels {
			if reason, isThere := reasons[key]; isThere {
				if sets[i].Refusals == nil {
					sets[i].Refusals = map[string]string{}
				}
				sets[i].Refusals[key] = reason
			}
		}
	}
}
