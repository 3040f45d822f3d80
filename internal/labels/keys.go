package labels

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unique"
)

// MaxKeysBytes is the size in bytes that a set of keys may have as text. The annotations of an
// object may have 256 KiB together (TotalAnnotationSizeLimitB in
// k8s.io/apimachinery/pkg/api/validation).
const MaxKeysBytes = 64 << 10

// isNoKeyCharacter reports whether a character is legal neither in a label key nor in the key of a
// taint or an annotation, see [TaintKey].
func isNoKeyCharacter(c rune) bool {
	isAlphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return !isAlphanumeric && !strings.ContainsRune("-_./:", c)
}

// Keys is a set of label keys: sorted, and separated by commas, which no label key has. The zero
// value is the empty set. Sets with the same keys are equal.
type Keys string

// KeysOf returns the set of these keys, in whatever order and however often they come. A set whose
// text would be larger than [MaxKeysBytes] is returned as the empty set.
func KeysOf(keys iter.Seq[string]) Keys {
	text := strings.Join(slices.Compact(slices.Sorted(keys)), ",")
	if len(text) > MaxKeysBytes {
		return ""
	}
	return Keys(unique.Make(text).Value()) // most Nodes have the same
}

// ParseKeys reads a set of label keys. Space around a key is ignored. It finds what cannot be meant
// as a label key, and not everything that Kubernetes refuses: no label has such a key.
func ParseKeys(text string) (Keys, error) {
	if text == "" {
		return "", nil
	}
	last, inOrder := "", len(text) <= MaxKeysBytes // as Keys has them, so as they are mostly read
	for item := range strings.SplitSeq(text, ",") {
		key := strings.TrimSpace(item)
		if prefix, name, ok := strings.Cut(key, "/"); key == "" || strings.ContainsFunc(key, isNoKeyCharacter) || ok && (prefix == "" || name == "") {
			return "", fmt.Errorf("%q is not a label key", key)
		}
		inOrder = inOrder && key == item && last < key
		last = key
	}
	if inOrder {
		return Keys(unique.Make(text).Value()), nil
	}
	return KeysOf(func(yield func(string) bool) {
		for item := range strings.SplitSeq(text, ",") {
			if !yield(strings.TrimSpace(item)) {
				return
			}
		}
	}), nil
}

// All returns the keys in their order.
func (k Keys) All() iter.Seq[string] {
	if k == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(string(k), ",")
}

// Set returns the keys for many look-ups. The result may be nil.
func (k Keys) Set() map[string]bool {
	var set map[string]bool
	for key := range k.All() {
		if set == nil {
			set = map[string]bool{}
		}
		set[key] = true
	}
	return set
}

// Union returns the keys that are in either set; those of k only if all would be too large.
func (k Keys) Union(other Keys) Keys {
	if other == "" || k == other {
		return k
	}
	if k == "" {
		return other
	}
	all := KeysOf(func(yield func(string) bool) {
		for key := range k.All() {
			if !yield(key) {
				return
			}
		}
		for key := range other.All() {
			if !yield(key) {
				return
			}
		}
	})
	if all == "" {
		return k // too large
	}
	return all
}

// Where returns the keys for which isKept is true.
func (k Keys) Where(isKept func(key string) bool) Keys {
	if k == "" {
		return ""
	}
	return KeysOf(func(yield func(string) bool) {
		for key := range k.All() {
			if isKept(key) && !yield(key) {
				return
			}
		}
	})
}

// Missing returns the keys that some labels do not have.
func (k Keys) Missing(from map[string]string) Keys {
	return k.Where(func(key string) bool {
		_, isThere := from[key]
		return !isThere
	})
}

// Same returns the keys that both labels have, with the same value.
func (k Keys) Same(a, b map[string]string) Keys {
	return k.Where(func(key string) bool {
		one, isInA := a[key]
		other, isInB := b[key]
		return isInA && isInB && one == other
	})
}

// Without returns the keys that are not in the other set.
func (k Keys) Without(other Keys) Keys {
	if k == "" || other == "" {
		return k
	}
	left := other.Set()
	return k.Where(func(key string) bool { return !left[key] })
}
