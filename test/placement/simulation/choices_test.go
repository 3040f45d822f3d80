package simulation

import "math/rand/v2"

// choices is the list of bytes that a run is a function of. Behind its end every choice is 0.
type choices struct {
	bytes []byte
	used  int
}

func (c *choices) isSpent() bool { return c.used >= len(c.bytes) }

// next returns a number from 0 to n-1.
func (c *choices) next(n int) int {
	if c.isSpent() || n <= 1 {
		return 0
	}
	b := c.bytes[c.used]
	c.used++
	return int(b) % n
}

// happens is true as often as it says, of 64 times, and never behind the end.
func (c *choices) happens(often int) bool { return often > 0 && c.next(64) >= 64-often }

const (
	minChoices  = 60
	maxChoices  = 300
	longChoices = 900
)

// choicesOf makes the choices of a seed in place of what is in bytes.
func choicesOf(seed uint64, bytes []byte) []byte {
	r := rand.NewPCG(seed, 1)
	limit := uint64(maxChoices)
	if r.Uint64()%6 == 0 {
		limit = longChoices
	}
	count := minChoices + int(r.Uint64()%(limit-minChoices))
	bytes = bytes[:0]
	for len(bytes) < count {
		random := r.Uint64()
		for range 8 {
			bytes = append(bytes, byte(random))
			random >>= 8
		}
	}
	return bytes
}

// shrink leaves out bytes and makes them zero as long as fails holds.
func shrink(bytes []byte, fails func([]byte) bool) []byte {
	for again := true; again; {
		again = false
		for size := max(len(bytes)/2, 1); size >= 1; size /= 2 {
			for at := 0; at+size <= len(bytes); {
				shorter := append(append([]byte{}, bytes[:at]...), bytes[at+size:]...)
				if fails(shorter) {
					bytes, again = shorter, true
					continue
				}
				at += size
			}
		}
		for at, b := range bytes {
			if b == 0 {
				continue
			}
			bytes[at] = 0
			if !fails(bytes) {
				bytes[at] = b
				continue
			}
			again = true
		}
	}
	return bytes
}
