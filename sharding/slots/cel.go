package slots

import "fmt"

// CEL returns a Common Expression Language expression that computes [Slot] as an int. The argument
// key is an expression for the key, a string. The result needs the strings library, two-variable
// comprehensions, and sum for lists (Kubernetes 1.33 or newer). It declares only the variables key,
// i, c and x.
func CEL(key string) string {
	sum := fmt.Sprintf("key.split('').transformList(i, c, ('%s'.indexOf(c) + %d) * (%d * (i + 1) * (i + 1) %% %d) * (%d * (i + 1) %% %d)).sum()",
		alphabet, 1+outsideTheAlphabet, factor1, modulus1, factor2, modulus2)
	slot := fmt.Sprintf("x * x %% %d * (x * x %% %d) %% %d * x %% %d %% %d", prime, prime, prime, prime, Count)
	return fmt.Sprintf("[%s].map(key, [%s %% %d].map(x, %s)[0])[0]", key, sum, prime, slot)
}
