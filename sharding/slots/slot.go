package slots

import "strings"

// Count is the number of slots.
const Count = 1024

// alphabet contains the characters of API groups, kinds, namespaces and names, and the slash
// between them. Each counts as its index plus 2.
const alphabet = "-./0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// The slot is a polynomial hash: every character is multiplied by a weight that depends on its
// position. x⁵ permutes the residues of the prime, because 5 does not divide prime-1, and spreads
// the slots of names that end in consecutive numbers.
const (
	prime              = 1<<31 - 1
	factor1, modulus1  = 40503, 65521
	factor2, modulus2  = 48271, 65537
	outsideTheAlphabet = 1
)

// Slot returns the slot of a key, from 0 to [Count]-1. Any string is a valid key. Characters are
// Unicode code points; all characters outside the alphabet have the same code.
func Slot(key string) int { return int(hash(key) % Count) }

// hash returns a number from 0 to prime-1.
func hash(key string) int64 {
	var sum, n int64
	for _, r := range key {
		n++
		sum += code(r) * weight(n)
	}
	x := sum % prime
	x2 := x * x % prime
	return x2 * x2 % prime * x % prime
}

func code(r rune) int64 { return int64(strings.IndexRune(alphabet, r)) + 1 + outsideTheAlphabet }

// weight returns the weight of the n-th character, counted from 1.
func weight(n int64) int64 { return factor1 * n * n % modulus1 * (factor2 * n % modulus2) }

// Object identifies the object that determines a slot: a main object itself, or the controller of a
// child.
type Object struct {
	// Group is the API group, "" for the core group.
	Group, Kind string
	// Namespace is empty for a cluster-scoped object.
	Namespace, Name string
}

// Key returns the key of an object's slot. It includes neither the API version nor the UID, which
// an object does not have yet when admission sees its creation.
func (o Object) Key() string { return o.Group + "/" + o.Kind + "/" + o.Namespace + "/" + o.Name }
