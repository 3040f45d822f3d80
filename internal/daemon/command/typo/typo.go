// Package typo suggests known words for a word that is misspelled.
package typo

import (
	"strings"

	"github.com/spf13/cobra"
)

// maxTypos bounds the wrong letters in a word.
const maxTypos = 2

// Advice returns a question with the names that are similar to word, each after prefix, as in "did
// you mean --watch?". If no name is similar, it returns otherwise.
func Advice(word string, names []string, prefix, otherwise string) string {
	meant := similar(word, names)
	if len(meant) == 0 {
		return otherwise
	}
	return "did you mean " + prefix + strings.Join(meant, " or "+prefix) + "?"
}

// similar returns the names that begin with word, or else the ones with the fewest wrong letters, by
// cobra's rules for commands.
func similar(word string, names []string) []string {
	all := &cobra.Command{}
	for _, name := range names {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	for typos := range min(maxTypos+1, len(word)) { // a short word is similar to all names
		all.SuggestionsMinimumDistance = typos
		if meant := all.SuggestionsFor(word); len(meant) > 0 {
			return meant
		}
	}
	return nil
}
