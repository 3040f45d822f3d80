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
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
)

type discardOptions struct {
	isYes  bool
	dryRun dryRun
	policy policyFlags
}

func newDiscardCommand(p *plugin) *cobra.Command {
	var o discardOptions
	cmd := &cobra.Command{
		Use:   "discard TRANSACTION...",
		Short: "Remove transactions that are stuck, or are none",
		Long: `Remove transactions from the queue without applying them, by their names, as
kubectl nodekeeper status shows them: NODE.VERSION of a transaction, and the name
of the ConfigMap of what is none. This says what each would have done, and asks
first.

What a transaction would have saved or restored is lost with it. The next event
of the node is recorded as ever.`,
		Example: `  # what would it have done?
  kubectl nodekeeper discard node-1.2571 --dry-run=client

  # remove it
  kubectl nodekeeper discard node-1.2571`,
		Args:              someTransactions,
		ValidArgsFunction: p.names(0, transactionNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.discard(cmd.Context(), &o, args) },
	}
	addYesFlag(cmd, &o.isYes)
	addDryRunFlag(cmd, &o.dryRun)
	o.policy.addFlags(cmd)
	return cmd
}

func (p *plugin) discard(ctx context.Context, o *discardOptions, args []string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	policy, err := o.policy.policy()
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	var all []*corev1.ConfigMap
	for _, arg := range args {
		cm, err := c.transaction(ctx, arg)
		if err != nil {
			return err
		}
		var loss string
		if t, reason := inspect.ParsePending(cm); reason != nil {
			loss = reason.Error()
		} else if loss, err = c.describeDiscard(ctx, t, policy); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(p.ErrOut, "%s: %s\n", shortName(cm), loss)
		all = append(all, cm)
	}
	if !o.dryRun.isDry() {
		if err := p.confirmed(o.isYes, "Remove "+count(len(all), "transaction")+"?"); err != nil {
			return err
		}
	}
	var errs []error
	for _, cm := range all {
		if err := c.removeTransaction(ctx, o.dryRun, cm); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "transaction/%s discarded%s\n", shortName(cm), o.dryRun.suffix())
	}
	return errors.Join(errs...)
}

// describeDiscard says what is lost with a transaction.
func (c *cluster) describeDiscard(ctx context.Context, t inspect.Pending, policy labels.Policy) (string, error) {
	n, err := c.Node(ctx, t.Node)
	if err != nil {
		return "", err
	}
	decisions := n.Forecast(policy)
	for i, pending := range n.Pending {
		switch {
		case pending.ObjectUID != t.ObjectUID:
		case i >= len(decisions):
			return "what it does is not known, as the record of the node cannot be read", nil
		case decisions[i].Action == preserve.Nothing:
			return "it would do nothing: " + decisions[i].Reason, nil
		default:
			written := decisions[i].Labels
			if decisions[i].Action == preserve.Save {
				written = decisions[i].Record.Labels
			}
			return fmt.Sprintf("it would %s %s: %s", decisions[i].Action, count(len(written), "label"), decisions[i].Reason), nil
		}
	}
	return "it is applied just now", nil
}

// removeTransaction deletes what was read, by its uid: another one that has its name since stays.
func (c *cluster) removeTransaction(ctx context.Context, dry dryRun, cm *corev1.ConfigMap) error {
	if dry == dryRunClient {
		return nil
	}
	err := dry.writer(c).Delete(ctx, cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err): // applied, or the answer to our own delete was lost
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("transaction %s has changed since it was read: run this again", shortName(cm))
	case err != nil:
		return fmt.Errorf("removing transaction %s: %w", shortName(cm), err)
	}
	return nil
}
