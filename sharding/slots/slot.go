package slots

import (
	"encoding/hex"
	"strconv"
)

// Count is the number of slots.
const Count = 1024

// The slot is a hash of the bytes of the key in UTF-8. As hexadecimal digits, which are again written
// as the hexadecimal digits of their characters, they are only decimal digits: "/" is 2f, and that is
// 3266. Every 16 of these are a number, and the numbers are added with weights that depend on their
// position. An expression needs few steps for that, as the API server has functions for whole texts.
// Each step for each character would cost it a microsecond. x⁵ permutes the residues of the prime,
// because 5 does not divide prime-1, and spreads the slots of names that end in consecutive numbers.
const (
	prime = 1<<31 - 1
	// digits is the number of digits of a number, those of four bytes of the key. An integer has room
	// for 18.
	digits = 16
	// The weights are less than 2²², so that the sum for the longest key does not exceed 64 bits.
	factor, offset, modulus = 2654435, 1103515, 1<<22 - 3
)

// Slot returns the slot of a key, from 0 to [Count]-1. Any string is a valid key.
func Slot(key string) int { return int(hash(key) % Count) }

// hash returns a number from 0 to prime-1.
func hash(key string) int64 {
	text := hex.EncodeToString([]byte(hex.EncodeToString([]byte(key))))
	var x int64
	for i := 0; i < len(text); i += digits {
		n, _ := strconv.ParseInt(text[i:min(i+digits, len(text))], 10, 64) // it has only decimal digits
		x = (x + n%prime*weight(int64(i/digits))) % prime
	}
	x2 := x * x % prime
	return x2 * x2 % prime * x % prime
}

// weight returns the weight of the number at an index.
func weight(i int64) int64 { return (factor*(i*i%modulus) + offset) % modulus }

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
