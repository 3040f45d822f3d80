package schedules

// Choices is the list of bytes that determines a run. Past its end, every choice is 0. It is not safe
// for concurrent use.
type Choices struct {
	bytes []byte
	used  int
	rest  int // what the last choice has left of its byte
}

// NewChoices returns the choices of a list of bytes, which must not change.
func NewChoices(bytes []byte) Choices { return Choices{bytes: bytes} }

// IsSpent reports whether the end of the list is reached.
func (c *Choices) IsSpent() bool { return c.used >= len(c.bytes) }

// Next returns a number from 0 to n-1.
func (c *Choices) Next(n int) int {
	if c.IsSpent() || n <= 1 {
		return 0
	}
	b := int(c.bytes[c.used])
	c.used++
	c.rest = b / n
	return b % n
}

// Also returns a further number from 0 to n-1 from the byte of the last choice. It uses no byte of
// its own, so that recorded seeds keep their meaning.
func (c *Choices) Also(n int) int {
	k := c.rest % n
	c.rest /= n
	return k
}

// Happens returns true with a probability of often/64, and false past the end of the list.
func (c *Choices) Happens(often int) bool { return often > 0 && c.Next(64) >= 64-often }
