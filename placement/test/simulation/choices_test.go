package simulation

import "nodekeeper.dev/test/schedules"

// choices is the list of bytes that determines a run. Past its end, every choice is 0.
type choices struct {
	bytes []byte
	used  int
	rest  int // what the last choice has left of its byte
}

func (c *choices) isSpent() bool { return c.used >= len(c.bytes) }

// next returns a number from 0 to n-1.
func (c *choices) next(n int) int {
	if c.isSpent() || n <= 1 {
		return 0
	}
	b := int(c.bytes[c.used])
	c.used++
	c.rest = b / n
	return b % n
}

// also returns a further number from 0 to n-1 from the byte of the last choice. It uses no byte of
// its own, so that recorded seeds keep their meaning.
func (c *choices) also(n int) int {
	k := c.rest % n
	c.rest /= n
	return k
}

// happens returns true with a probability of often/64, and false past the end of the list.
func (c *choices) happens(often int) bool { return often > 0 && c.next(64) >= 64-often }

// lengths makes most schedules short.
var lengths = schedules.Lengths{Min: 60, Max: 300, Long: 900, LongOneIn: 6, Stream: 1} //nolint:gochecknoglobals // a constant
