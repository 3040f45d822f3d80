package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/txn"
)

func newSaveCommand(p *plugin) *cobra.Command {
	h := &requesting{Requests: byhand.Requests{Type: txn.Updated, Done: "saved"}}
	all := false
	cmd := &cobra.Command{
		Use:   "save NODE... | --all",
		Short: "Save the labels that nodes have now",
		Long: `Save the labels that nodes have now, and wait until that is done.

Watchers do that by themselves. Use this command when they do not: with
--record-updates=false, or before all of them are stopped.

It stores the transaction that a watcher would record for a change of labels,
and the processors apply it by the same rules as any other. So a node whose
saved labels are not restored yet is not saved: they would be lost. To give them
up, see kubectl nodekeeper forget.`,
		Example: `  # one node
  kubectl nodekeeper save node-1

  # what would be saved of all of them
  kubectl nodekeeper save --all --dry-run=client`,
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("give the names of nodes, or --all: see kubectl nodekeeper save --help")
			}
			return nil
		},
		ValidArgsFunction: p.names(0, liveNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.save(cmd.Context(), h, args) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "All nodes.")
	addDryRunFlag(cmd, &h.dryRun)
	addTimeoutFlag(cmd, &h.Timeout)
	return cmd
}

// save saves the labels of the nodes in args, or of all nodes if args is empty.
func (p *plugin) save(ctx context.Context, h *requesting, args []string) error {
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
	if len(names) == 0 {
		if err := liveNames(ctx, c, func(name string) { names = append(names, name) }); err != nil {
			return err
		}
		slices.Sort(names)
	}
	if len(names) == 0 {
		_, _ = fmt.Fprintln(p.ErrOut, "No nodes found.")
		return nil
	}
	return h.run(ctx, p, c, servers, names)
}
