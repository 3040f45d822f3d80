package simulation

import "nodekeeper.dev/test/schedules"

// choices is the input of a run: a list of bytes. After its end every choice is 0.
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

// chance is the probability of an event, in sixty-fourths.
type chance int

// happens reports whether the event happens. It returns false after the end of the list: no more
// faults occur.
func (c *choices) happens(often chance) bool {
	return often > 0 && c.next(64) >= 64-int(often)
}

// pick returns one of the given values. Shrinking prefers the first.
func pick[T any](c *choices, from ...T) T { return from[c.next(len(from))] }

// Most schedules are short. A fault that takes more than one restore needs a long one.
var lengths = schedules.Lengths{Min: 40, Max: 240, Long: 800, LongOneIn: 8} //nolint:gochecknoglobals // a constant
