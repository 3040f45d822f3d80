package cli

import (
	"context"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/txn"
)

func newRestoreCommand(p *plugin) *cobra.Command {
	h := &byHand{typ: txn.Added, done: "restored"}
	var policy policyFlags
	cmd := &cobra.Command{
		Use:   "restore NODE...",
		Short: "Put the saved labels back onto nodes that have not got them",
		Long: `Put the saved labels back onto nodes that have not got them, and wait until that
is done.

Watchers see to that by themselves when a node returns. By hand it is for when
none did.

It puts the transaction that a watcher would record of a node that appeared, and
the processors apply it by the same rules as any other. A node that has got its
labels back is left alone, whatever became of them since: what people edit after
a restore is theirs. To have a saved value on such a node, see what it is with
kubectl nodekeeper diff, and put it there with kubectl label.`,
		Example: `  # what would be put back
  kubectl nodekeeper restore node-1 --dry-run=client

  # put it back
  kubectl nodekeeper restore node-1`,
		Args:              someNodes,
		ValidArgsFunction: p.names(0, liveNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.restore(cmd.Context(), h, &policy, args) },
	}
	addDryRunFlag(cmd, &h.dryRun)
	addTimeoutFlag(cmd, &h.timeout)
	policy.addFlags(cmd)
	return cmd
}

func (p *plugin) restore(ctx context.Context, h *byHand, policy *policyFlags, args []string) (err error) {
	if err := h.dryRun.validate(); err != nil {
		return err
	}
	if h.policy, err = policy.policy(); err != nil {
		return err
	}
	c, names, err := p.connectFor(args)
	if err != nil {
		return err
	}
	return h.apply(ctx, p, c, names)
}
