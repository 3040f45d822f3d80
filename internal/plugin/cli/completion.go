package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/cli/output"
)

// completionTimeout is how long a shell is kept waiting for names.
const completionTimeout = 3 * time.Second

type completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeFlag completes the values of a flag that there is.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// names completes the names of objects that sources list. At most limit arguments are names; 0: all
// of them.
func (p *plugin) names(limit int, sources ...func(context.Context, *cluster, func(string)) error) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := p.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		seen := map[string]bool{}
		for _, given := range args {
			seen[strings.TrimPrefix(given, output.NamePrefix)] = true
		}
		var found []cobra.Completion
		add := func(name string) {
			if !seen[name] && strings.HasPrefix(name, prefix) {
				seen[name] = true
				found = append(found, name)
			}
		}
		for _, source := range sources {
			if source(ctx, c, add) != nil {
				return nil, cobra.ShellCompDirectiveError
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// liveNames lists the nodes that there are.
func liveNames(ctx context.Context, c *cluster, add func(string)) error {
	return c.Nodes().Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		add(n.Name)
		return nil
	})
}

// recordNames lists the nodes that have records.
func recordNames(ctx context.Context, c *cluster, add func(string)) error {
	return c.Records().EachName(ctx, add)
}

// transactionNames lists what is in the queue, by the names that retry and discard take.
func transactionNames(ctx context.Context, c *cluster, add func(string)) error {
	return c.Queue().Each(ctx, func(cm *corev1.ConfigMap) error {
		add(byhand.ShortName(cm))
		return nil
	})
}
