package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
)

type forgetOptions struct {
	yes           bool
	ignorePending bool
	dryRun        dryRun
}

func newForgetCommand(p *plugin) *cobra.Command {
	var o forgetOptions
	cmd := &cobra.Command{
		Use:   "forget NODE...",
		Short: "Remove the saved labels of nodes",
		Long: `Remove the records of nodes. This asks first.

A node that is away then returns as a new one: its labels are lost. To keep them
elsewhere, export them before.

A node that is there keeps the labels that it has, and its record starts over
with them. If its saved labels are not restored yet, they never will be.

Events of the node from before do not bring its record back, whenever they are
recorded. So a node that has pending transactions is not forgotten, unless you
give --ignore-pending: what they would save is lost.`,
		Example: `  # a machine that is gone for good
  kubectl nodekeeper forget node-1

  # in a script
  kubectl nodekeeper forget node-1 node-2 --yes`,
		Args:              someNodes,
		ValidArgsFunction: p.names(0, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.forget(cmd.Context(), &o, args) },
	}
	addYesFlag(cmd, &o.yes)
	cmd.Flags().BoolVar(&o.ignorePending, "ignore-pending", false, "Forget nodes that have pending transactions too.")
	addDryRunFlag(cmd, &o.dryRun)
	return cmd
}

func (p *plugin) forget(ctx context.Context, o *forgetOptions, args []string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	c, names, err := p.connectFor(args)
	if err != nil {
		return err
	}
	servers, err := p.serve(ctx, c, false)
	if err != nil {
		return err
	}
	nodes, err := byhand.ReadNodes(ctx, &c.Cluster, names)
	if err != nil {
		return err
	}
	for _, name := range names { // refuse all if one cannot be removed
		if err := byhand.Forgettable(nodes[name], name, o.ignorePending); err != nil {
			return err
		}
	}
	live := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return nodes[name].Live == nil })
	servers.warn(p.ErrOut, viewSettings, live...)
	for _, name := range names {
		_, _ = fmt.Fprintf(p.ErrOut, "%s: %s\n", name, describeLoss(nodes[name]))
	}
	if !o.dryRun.Dry() {
		if err := p.confirmed(o.yes, "Remove "+amount.Of(len(names), "record")+"?"); err != nil {
			return err
		}
	}
	var errs []error
	for _, name := range names {
		if err := byhand.Forget(ctx, &c.Cluster, o.dryRun.DryRun, nodes[name], o.ignorePending); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "node/%s forgotten%s\n", name, o.dryRun.suffix())
	}
	return errors.Join(errs...)
}

// describeLoss describes the effect of removing a record.
func describeLoss(n *inspect.Node) string {
	switch n.State() {
	case inspect.Away:
		return amount.Of(len(n.Saved.Record.Labels), "saved label") + " will be lost: the node is away"
	case inspect.Restoring:
		return amount.Of(len(n.Saved.Record.Labels), "saved label") + " will be lost: the node is there, and does not have them yet"
	case inspect.Unreadable:
		return "its record cannot be read, and will be removed as it is"
	case inspect.Live, inspect.NeverSeen:
	}
	return "the node is there: its record starts over with the labels it has"
}
