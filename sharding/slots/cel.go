package slots

import "fmt"

// CEL returns a Common Expression Language expression that computes [Slot] as an int. The argument
// key is an expression for the key, which is evaluated once. Its cost grows with the length of the
// key, and the API server limits the cost of an expression. The result needs the libraries for
// strings, regular expressions and sums, and two-variable comprehensions (Kubernetes 1.33 or newer).
// It declares only the variables i, c and x.
func CEL(key string) string {
	text := fmt.Sprintf("'%%x'.format(['%%x'.format([%s])])", key)
	sum := fmt.Sprintf("%s.findAll('.{1,%d}').transformList(i, c, int(c) %% %d * ((%d * i * i + %d) %% %d)).sum()",
		text, digits, prime, factor, offset, modulus)
	slot := fmt.Sprintf("x * x %% %d * (x * x %% %d) %% %d * x %% %d %% %d", prime, prime, prime, prime, Count)
	return fmt.Sprintf("[%s %% %d].map(x, %s)[0]", sum, prime, slot)
}
