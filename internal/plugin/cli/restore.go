package cli

import (
	"context"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/txn"
)

func newRestoreCommand(p *plugin) *cobra.Command {
	h := &requesting{Requests: byhand.Requests{Type: txn.Added, Done: "restored"}}
	cmd := &cobra.Command{
		Use:   "restore NODE...",
		Short: "Restore the saved labels of nodes that do not have them",
		Long: `Restore the saved labels of nodes that do not have them, and wait until that is
done.

A node that returns is restored without this command. Use it if no watcher
recorded the return.

It stores the transaction that a watcher would record for a node that appeared,
and the processors apply it by the same rules as any other. A restored node is
left alone, even if its labels were edited since: edits after a restore win. To
have a saved value on such a node, find it with kubectl nodekeeper diff, and set
it with kubectl label.

While a watcher runs, this waits until the end of the incarnation before is on
record: the last change of its labels may be on the way. An end that no watcher
saw is never recorded; give --ignore-missing-end then.`,
		Example: `  # what would be restored
  kubectl nodekeeper restore node-1 --dry-run=client

  # restore it
  kubectl nodekeeper restore node-1`,
		Args:              someNodes,
		ValidArgsFunction: p.names(0, liveNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.restore(cmd.Context(), h, args) },
	}
	addDryRunFlag(cmd, &h.dryRun)
	addMissingEndFlag(cmd, &h.IgnoreMissingEnd)
	addTimeoutFlag(cmd, &h.Timeout)
	addPolicyFlags(cmd)
	return cmd
}

func (p *plugin) restore(ctx context.Context, h *requesting, args []string) error {
	if err := h.dryRun.validate(); err != nil {
		return err
	}
	c, names, err := p.connectFor(args)
	if err != nil {
		return err
	}
	servers, err := p.serve(ctx, c, true)
	if err != nil {
		return err
	}
	return h.run(ctx, p, c, servers, names)
}
