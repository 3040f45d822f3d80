package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/queue"
)

type discardOptions struct {
	yes    bool
	dryRun dryRun
}

func newDiscardCommand(p *plugin) *cobra.Command {
	var o discardOptions
	cmd := &cobra.Command{
		Use:   "discard TRANSACTION...",
		Short: "Remove stuck or malformed transactions",
		Long: `Remove transactions from the queue without applying them, by the names that
kubectl nodekeeper status shows: NODE.VERSION of a transaction, or the name of a
malformed ConfigMap. This shows what each would have done, and asks first.

The labels that a transaction would have saved or restored are lost with it. The
next event of the node is recorded as usual.`,
		Example: `  # what would it have done?
  kubectl nodekeeper discard node-1.2571 --dry-run=client

  # remove it
  kubectl nodekeeper discard node-1.2571`,
		Args:              someTransactions,
		ValidArgsFunction: p.names(0, transactionNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.discard(cmd.Context(), &o, args) },
	}
	addYesFlag(cmd, &o.yes)
	addDryRunFlag(cmd, &o.dryRun)
	addPolicyFlags(cmd)
	return cmd
}

func (p *plugin) discard(ctx context.Context, o *discardOptions, args []string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	servers, err := p.serve(ctx, c, false)
	if err != nil {
		return err
	}
	all := make([]*corev1.ConfigMap, len(args))
	losses, nodes := make([]string, len(args)), []string{}
	for i, arg := range args {
		if all[i], err = byhand.ReadTransaction(ctx, &c.Cluster, arg); err != nil {
			return err
		}
		if losses[i], err = byhand.DescribeDiscard(ctx, &c.Cluster, all[i], servers.policy); err != nil {
			return err
		}
		if t, malformed := queue.Parse(all[i]); malformed == nil {
			nodes = append(nodes, t.Node)
		}
	}
	servers.warn(p.ErrOut, forecastSettings, nodes...)
	for i, loss := range losses {
		_, _ = fmt.Fprintf(p.ErrOut, "%s: %s\n", byhand.ShortName(all[i]), loss)
	}
	if !o.dryRun.Dry() {
		if err := p.confirmed(o.yes, "Remove "+amount.Of(len(all), "transaction")+"?"); err != nil {
			return err
		}
	}
	var errs []error
	for _, cm := range all {
		if err := byhand.Discard(ctx, &c.Cluster, o.dryRun.DryRun, cm); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "transaction/%s discarded%s\n", byhand.ShortName(cm), o.dryRun.suffix())
	}
	return errors.Join(errs...)
}
