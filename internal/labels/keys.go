package labels

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unique"
)

// MaxKeysBytes is the maximum size in bytes of a set of keys as text. The annotations of an object
// are limited to 256 KiB in total (TotalAnnotationSizeLimitB in
// k8s.io/apimachinery/pkg/api/validation).
const MaxKeysBytes = 64 << 10

// isNoKeyCharacter reports whether a character is valid neither in a label key nor in the key of a
// taint or an annotation, see [TaintKey].
func isNoKeyCharacter(c rune) bool {
	isAlphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	return !isAlphanumeric && !strings.ContainsRune("-_./:", c)
}

// Keys is a set of label keys, sorted and separated by commas, which label keys never contain. The
// zero value is the empty set. Sets with the same keys are equal.
type Keys string

// KeysOf returns the set of these keys, in any order and with duplicates. A set whose text would be
// larger than [MaxKeysBytes] is returned as the empty set.
func KeysOf(keys iter.Seq[string]) Keys { return AllKeysOf(keys).Bounded() }

// AllKeysOf is [KeysOf] for a set of any size, which must not be stored.
func AllKeysOf(keys iter.Seq[string]) Keys {
	text := strings.Join(slices.Compact(slices.Sorted(keys)), ",")
	return Keys(unique.Make(text).Value()) // most Nodes have the same
}

// Bounded returns the set, or the empty set if its text is larger than [MaxKeysBytes].
func (k Keys) Bounded() Keys {
	if len(k) > MaxKeysBytes {
		return ""
	}
	return k
}

// ParseKeys parses a set of label keys. Spaces around keys are ignored. It rejects text that cannot
// be a list of label keys, but not every key that Kubernetes rejects, because no label has such a
// key.
func ParseKeys(text string) (Keys, error) {
	if text == "" {
		return "", nil
	}
	last, inOrder := "", len(text) <= MaxKeysBytes // in canonical form, which is the common case
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

// All returns the keys in order.
func (k Keys) All() iter.Seq[string] {
	if k == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(string(k), ",")
}

// Has reports whether a key is among the keys.
func (k Keys) Has(key string) bool {
	for other := range k.All() {
		if other == key {
			return true
		}
	}
	return false
}

// Set returns the keys as a map. The result may be nil.
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

// Union returns the keys that are in either set, or only those of k if the union would be too
// large.
func (k Keys) Union(other Keys) Keys {
	if all := k.Join(other).Bounded(); all != "" {
		return all
	}
	return k
}

// Join is [Keys.Union] for sets of any size, see [AllKeysOf].
func (k Keys) Join(other Keys) Keys {
	if other == "" || k == other {
		return k
	}
	if k == "" {
		return other
	}
	return AllKeysOf(func(yield func(string) bool) {
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
}

// Where returns the keys for which isKept is true.
func (k Keys) Where(isKept func(key string) bool) Keys {
	if k == "" {
		return ""
	}
	return AllKeysOf(func(yield func(string) bool) { // not larger than k
		for key := range k.All() {
			if isKept(key) && !yield(key) {
				return
			}
		}
	})
}

// Missing returns the keys that are not in from.
func (k Keys) Missing(from map[string]string) Keys {
	return k.Where(func(key string) bool {
		_, isThere := from[key]
		return !isThere
	})
}

// Same returns the keys that have the same value in a and b.
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
