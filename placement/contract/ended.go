package contract

import (
	"slices"
	"strings"
)

// maxEnded bounds the incarnations in EndedBeforeAnnotation. Others count as ended as if no Lease
// had named them; see the design.
const maxEnded = 16

// MarkEnded records in the annotations of a Lease that an incarnation has ended: it becomes the one
// in EndedAnnotation, and the former one goes to EndedBeforeAnnotation. Without that, a controller
// that was away while a pod ended twice would not know that the first incarnation has ended.
func MarkEnded(annotations map[string]string, incarnation string) {
	all := slices.DeleteFunc(Ended(annotations), func(other string) bool { return other == incarnation })
	annotations[EndedAnnotation] = incarnation
	delete(annotations, EndedBeforeAnnotation)
	if len(all) > 0 {
		annotations[EndedBeforeAnnotation] = strings.Join(all[:min(len(all), maxEnded)], ",")
	}
}

// Ended returns the incarnations that are known to have ended by the annotations of a Lease, the
// last one first.
func Ended(annotations map[string]string) []string {
	var all []string
	if last := annotations[EndedAnnotation]; last != "" {
		all = append(all, last)
	}
	if before := annotations[EndedBeforeAnnotation]; before != "" {
		all = append(all, strings.Split(before, ",")...)
	}
	return all
}
