// Package amount formats numbers of things for people.
package amount

import "fmt"

// Of returns a number of things, as in "1 label" and "2 labels".
func Of(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
