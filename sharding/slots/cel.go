package slots

import "fmt"

// CEL returns an expression of the Common Expression Language for [Slot]: an int, from an expression
// for the key, which is a string. It needs the strings library, two-variable comprehensions, and the
// sum of a list (Kubernetes 1.33 or newer). It declares no name but key, i, c and x.
func CEL(key string) string {
	sum := fmt.Sprintf("key.split('').transformList(i, c, ('%s'.indexOf(c) + %d) * (%d * (i + 1) * (i + 1) %% %d) * (%d * (i + 1) %% %d)).sum()",
		alphabet, 1+outsideTheAlphabet, factor1, modulus1, factor2, modulus2)
	slot := fmt.Sprintf("x * x %% %d * (x * x %% %d) %% %d * x %% %d %% %d", prime, prime, prime, prime, Count)
	return fmt.Sprintf("[%s].map(key, [%s %% %d].map(x, %s)[0])[0]", key, sum, prime, slot)
}
