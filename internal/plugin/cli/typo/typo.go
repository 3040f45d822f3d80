// Package typo guesses which known word people meant by one that is not known.
package typo

import (
	"strings"

	"github.com/spf13/cobra"
)

// maxTypos bounds the letters that may be wrong in a typing error.
const maxTypos = 2

// Advice returns a question that names what people may have meant, each after prefix, as in "did
// you mean --watch?". If no name is alike, it returns otherwise.
func Advice(word string, names []string, prefix, otherwise string) string {
	meant := alike(word, names)
	if len(meant) == 0 {
		return otherwise
	}
	return "did you mean " + prefix + strings.Join(meant, " or "+prefix) + "?"
}

// alike returns the names that somebody may have meant, by cobra's rules for commands: those that
// begin like that, or else those with the fewest letters wrong.
func alike(word string, names []string) []string {
	all := &cobra.Command{}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	for typos := range min(maxTypos+1, len(word)) { // a short word is like everything
		all.SuggestionsMinimumDistance = typos
		if meant := all.SuggestionsFor(word); len(meant) > 0 {
			return meant
		}
	}
	return nil
}
