package simulation

import "nodekeeper.dev/test/schedules"

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

// Most schedules are short.
var lengths = schedules.Lengths{Min: 60, Max: 300, Long: 900, LongOneIn: 6, Stream: 1} //nolint:gochecknoglobals // a constant
