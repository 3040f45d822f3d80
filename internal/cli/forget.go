package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/inspect"
)

type forgetOptions struct {
	isYes         bool
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

A node that is there keeps the labels that it has, and they are saved anew: with
its next change of labels, when it is deleted, or when a watcher starts. If it
has not got its saved labels back, it does not get them any more.

A node that has pending transactions is not forgotten: they may make its record
anew. With --ignore-pending it is, and they may.`,
		Example: `  # a machine that is gone for good
  kubectl nodekeeper forget node-1

  # in a script
  kubectl nodekeeper forget node-1 node-2 --yes`,
		Args:              someNodes,
		ValidArgsFunction: p.names(0, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.forget(cmd.Context(), &o, args) },
	}
	addYesFlag(cmd, &o.isYes)
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
	nodes, err := c.nodesOf(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names { // nothing is removed if something is wrong
		if err := o.check(nodes[name], name); err != nil {
			return err
		}
	}
	for _, name := range names {
		_, _ = fmt.Fprintf(p.ErrOut, "%s: %s\n", name, describeLoss(nodes[name]))
	}
	if !o.dryRun.isDry() {
		if err := p.confirmed(o.isYes, "Remove "+count(len(names), "record")+"?"); err != nil {
			return err
		}
	}
	var errs []error
	for _, name := range names {
		if err := c.removeRecord(ctx, o.dryRun, nodes[name].Saved.Object); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "node/%s forgotten%s\n", name, o.dryRun.suffix())
	}
	return errors.Join(errs...)
}

func (o *forgetOptions) check(n *inspect.Node, name string) error {
	switch {
	case n == nil || n.Saved.Object == nil:
		return fmt.Errorf("nothing is saved of node %q: kubectl nodekeeper list shows what is", name)
	case len(n.Pending) > 0 && !o.ignorePending:
		return fmt.Errorf("node %q has %s, which may make its record anew: wait until nothing is pending (kubectl nodekeeper show %s), or give --ignore-pending",
			name, count(len(n.Pending), "pending transaction"), name)
	}
	return nil
}

// describeLoss says what it means to remove a record.
func describeLoss(n *inspect.Node) string {
	switch n.State() {
	case inspect.Away:
		return count(len(n.Saved.Record.Labels), "saved label") + " will be lost: the node is away"
	case inspect.Restoring:
		return count(len(n.Saved.Record.Labels), "saved label") + " will be lost: the node is there, and has not got them back"
	case inspect.Unreadable:
		return "its record cannot be read, and will be removed as it is"
	case inspect.Live, inspect.NeverSeen:
	}
	return "the node is there: its labels are saved anew with its next change"
}

// removeRecord deletes a record, conditional on the one that was read.
func (c *cluster) removeRecord(ctx context.Context, dry dryRun, cm *corev1.ConfigMap) error {
	if dry == dryRunClient {
		return nil
	}
	err := dry.writer(c).Delete(ctx, cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err): // somebody else removed it, or the answer to our own delete was lost
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("node %q is not forgotten: %w", cm.Name, errChanged)
	case err != nil:
		return fmt.Errorf("removing the record of node %q: %w", cm.Name, err)
	}
	return nil
}
