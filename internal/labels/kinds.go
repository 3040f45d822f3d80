package labels

import (
	"slices"
	"strings"
)

// Annotations and taints are stored in the same map as labels, under keys with a colon. Keys of
// labels, annotations and taints on a Node never contain one, so these keys never collide.
const (
	annotationKind = "annotation:"
	taintKind      = "taint:"

	annotationPrefix = "---ANNOTATION---"
	taintPrefix      = "---TAINT---"
	tokenDashes      = "---"
)

// AnnotationKey returns the key under which an annotation is stored.
func AnnotationKey(key string) string { return annotationKind + key }

// TaintKey returns the key under which a taint with this key and effect is stored.
func TaintKey(key, effect string) string { return taintKind + key + ":" + effect }

// AsAnnotation is the inverse of [AnnotationKey]. It reports false for any other key.
func AsAnnotation(key string) (annotation string, ok bool) {
	return strings.CutPrefix(key, annotationKind)
}

// AsTaint is the inverse of [TaintKey]. It reports false for any other key.
func AsTaint(key string) (taint, effect string, ok bool) {
	rest, ok := strings.CutPrefix(key, taintKind)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}

// IsLabel reports whether a key belongs to a label, and not to an annotation or a taint.
func IsLabel(key string) bool { return !strings.Contains(key, ":") }

// Described returns a key as people know it: with its kind before it, unless it belongs to a label.
func Described(key string) string {
	if annotation, ok := AsAnnotation(key); ok {
		return "annotation " + annotation
	}
	if taint, effect, ok := AsTaint(key); ok {
		return "taint " + taint + ":" + effect
	}
	return key
}

// IsTaint reports whether a key belongs to a taint, see [TaintKey].
func IsTaint(key string) bool { return strings.HasPrefix(key, taintKind) }

// Taints returns the keys that belong to taints.
func (k Keys) Taints() Keys { return k.Where(IsTaint) }

// readable returns the data key of a key before its slash is replaced.
func readable(key string) string {
	if annotation, ok := AsAnnotation(key); ok {
		return annotationPrefix + annotation
	}
	if taint, effect, ok := AsTaint(key); ok {
		return taintPrefix + effect + tokenDashes + taint
	}
	return key
}

// keyFromReadable is the inverse of readable for annotations and taints. It reports false for other
// text.
func keyFromReadable(text string) (key string, ok bool) {
	if annotation, ok := strings.CutPrefix(text, annotationPrefix); ok {
		return AnnotationKey(annotation), true
	}
	rest, ok := strings.CutPrefix(text, taintPrefix)
	if !ok {
		return "", false
	}
	effect, taint, ok := strings.Cut(rest, tokenDashes) // an effect contains no dash
	return TaintKey(taint, effect), ok
}

// Changes turn one set of labels, annotations and taints into another. A nil value removes a key.
type Changes struct {
	Labels, Annotations map[string]*string
	// Taints reports whether any taint changes.
	Taints bool
}

// ChangesBetween returns the changes that turn before into after. Annotations have the keys that
// they have on a Node.
func ChangesBetween(before, after map[string]string) Changes {
	c := Changes{Labels: map[string]*string{}, Annotations: map[string]*string{}}
	for _, key := range Differing(before, after) {
		c.set(key, ValueOf(after, key))
	}
	return c
}

// Differing returns the sorted keys whose values differ, of labels, annotations and taints.
func Differing(a, b map[string]string) []string {
	var keys []string
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (c *Changes) set(key string, value *string) {
	annotation, isAnnotation := AsAnnotation(key)
	switch {
	case isAnnotation:
		c.Annotations[annotation] = value
	case IsLabel(key):
		c.Labels[key] = value
	default:
		c.Taints = true
	}
}

// ValueOf returns the value of a key, or nil if it is missing.
func ValueOf(all map[string]string, key string) *string {
	if value, ok := all[key]; ok {
		return &value
	}
	return nil
}

// Pointer returns the JSON pointer (RFC 6901) to a key of the map at a path.
func Pointer(path, key string) string { return path + "/" + escape.Replace(key) }

var escape = strings.NewReplacer("~", "~0", "/", "~1")
