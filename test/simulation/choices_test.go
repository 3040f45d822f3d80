package simulation

// choices is the list of bytes that a run is a function of. Behind its end every choice is 0.
type choices struct {
	bytes []byte
	used  int
}

func (c *choices) isSpent() bool { return c.used >= len(c.bytes) }

// next returns a number from 0 to n-1.
func (c *choices) next(n int) int {
	if c.isSpent() {
		return 0
	}
	b := c.bytes[c.used]
	c.used++
	return int(b) % n
}

// oneOf is true in one of n cases, and never behind the end: nothing goes wrong any more.
func (c *choices) oneOf(n int) bool { return c.next(n) == n-1 }

// shrink leaves out and zeroes bytes as long as fails holds.
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
	}
	return bytes
}
