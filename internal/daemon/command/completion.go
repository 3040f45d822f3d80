package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout bounds how long a shell waits for names.
const completionTimeout = 3 * time.Second

// CompleteFlag completes the values of a flag that exists.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteNames completes arguments that are names of objects, at most limit of them; 0 means any
// number. It omits names that precede on the command line, with or without prefix, which is the one
// that -o name prints. List calls add with each name.
func CompleteNames(limit int, prefix string, list func(ctx context.Context, add func(string)) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		seen := map[string]bool{}
		for _, arg := range args {
			seen[strings.TrimPrefix(arg, prefix)] = true
		}
		var found []cobra.Completion
		err := list(ctx, func(name string) {
			if !seen[name] && strings.HasPrefix(name, begin) {
				seen[name] = true
				found = append(found, name)
			}
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
