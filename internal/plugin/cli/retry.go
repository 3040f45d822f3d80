package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/plugin/byhand"
)

func newRetryCommand(p *plugin) *cobra.Command {
	var dry dryRun
	cmd := &cobra.Command{
		Use:   "retry NODE | TRANSACTION...",
		Short: "Retry stuck transactions at once",
		Long: `Retry transactions at once: all of a node, or some by the names that kubectl
nodekeeper status shows: NODE.VERSION of a transaction, or the name of a malformed
ConfigMap.

A processor that cannot apply a transaction retries by itself, after up to 30
seconds. A malformed ConfigMap was marked. It is read once more: it is applied if
you have corrected it, and marked again otherwise.`,
		Example: `  # all of a node
  kubectl nodekeeper retry node-1

  # one
  kubectl nodekeeper retry node-1.2571`,
		Args:              someTransactions,
		ValidArgsFunction: p.names(0, transactionNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.retry(cmd.Context(), dry, args) },
	}
	addDryRunFlag(cmd, &dry)
	return cmd
}

// someTransactions is the Args of a command that takes one or more transactions.
func someTransactions(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("give the names of transactions, as kubectl nodekeeper status shows them: %s", command.Synopsis(cmd))
	}
	return nil
}

func (p *plugin) retry(ctx context.Context, dry dryRun, args []string) error {
	if err := dry.validate(); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	var all []*corev1.ConfigMap
	for _, arg := range args {
		node := ""
		if names, err := nodeNames([]string{arg}); err == nil {
			node = names[0]
		}
		found, err := byhand.ReadRetried(ctx, &c.Cluster, arg, node)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	var errs []error
	for _, cm := range all {
		if err := byhand.Retry(ctx, &c.Cluster, dry.DryRun, cm); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "transaction/%s %s%s\n", byhand.ShortName(cm), byhand.DescribeRetry(cm), dry.suffix())
	}
	return errors.Join(errs...)
}
