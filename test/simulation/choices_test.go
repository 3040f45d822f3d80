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
	if c.isSpent() {
		return 0
	}
	b := c.bytes[c.used]
	c.used++
	return int(b) % n
}

// chance is how often, of 64 times, something happens.
type chance int

// happens is never true behind the end: nothing goes wrong any more.
func (c *choices) happens(often chance) bool {
	return often > 0 && c.next(64) >= 64-int(often)
}

// pick returns one of a few values; the first is what shrinking strives for.
func pick[T any](c *choices, from ...T) T { return from[c.next(len(from))] }

// Most schedules are short. What needs more than one restore to go wrong needs the long ones.
var lengths = schedules.Lengths{Min: 40, Max: 240, Long: 800, LongOneIn: 8} //nolint:gochecknoglobals // a constant
