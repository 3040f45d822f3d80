package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// errChanged says that a record was written since it was read.
var errChanged = errors.New("the record has changed since it was read: run this again")

type setOptions struct {
	edit         labelEdit
	mayOverwrite bool
	dryRun       dryRun
	timeout      time.Duration
}

func newSetCommand(p *plugin) *cobra.Command {
	var o setOptions
	cmd := &cobra.Command{
		Use:   "set NODE KEY=VALUE... KEY-...",
		Short: "Edit the saved labels of a node that is away",
		Long: `Edit the saved labels of a node that is away: it has them when it returns.

Labels are checked as kubectl label does. Transactions of the node that are
pending are waited for; what is recorded after the edit of the time before it
has no effect any more. The labels of a node that is there are changed with
kubectl label.`,
		Example: `  # it is to return in another rack, and in no team
  kubectl nodekeeper set node-1 rack=r9 example.com/team- --overwrite`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return fmt.Errorf("give the name of a node, and what to change: %s", usage(cmd))
			}
			o.edit, err = parseLabelEdit(args[1:])
			return err
		},
		ValidArgsFunction: p.names(1, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.set(cmd.Context(), &o, args[:1]) },
	}
	cmd.Flags().BoolVar(&o.mayOverwrite, "overwrite", false, "Change the values of labels that are there.")
	addDryRunFlag(cmd, &o.dryRun)
	addTimeoutFlag(cmd, &o.timeout)
	return cmd
}

func (p *plugin) set(ctx context.Context, o *setOptions, args []string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	c, names, err := p.connectFor(args)
	if err != nil {
		return err
	}
	n, err := c.settledNode(ctx, newProgress(p.ErrOut), names[0], o.timeout)
	if err != nil {
		return err
	}
	edited, err := o.edited(n)
	if err != nil {
		return err
	}
	if maps.Equal(edited.Labels, n.Saved.Record.Labels) {
		_, _ = fmt.Fprintf(p.Out, "node/%s not changed: its saved labels are so already\n", n.Name)
		return nil
	}
	if o.dryRun != dryRunClient {
		if err := o.write(ctx, c, n, edited); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(p.Out, "node/%s changed, version %s%s\n", n.Name, edited.Version, o.dryRun.suffix())
	writeChanges(p.Out, n.Saved.Record.Labels, edited.Labels)
	return nil
}

// settledNode reads a node that is away and has a record, when nothing is pending of it: what is pending may hold labels that the record
// is to have first.
func (c *cluster) settledNode(ctx context.Context, shown *progress, name string, timeout time.Duration) (n *inspect.Node, err error) {
	defer shown.done()
	isSettled, err := poll(ctx, timeout, func() (bool, error) {
		n, err = c.knownNode(ctx, name)
		switch {
		case err != nil:
			return false, err
		case n.Live != nil:
			return false, fmt.Errorf("node %q is there: change its labels with kubectl label node %s", name, name)
		case n.Saved.Unreadable != nil:
			return false, fmt.Errorf("the record of node %q: %w: mend it, or forget it", name, n.Saved.Unreadable)
		}
		shown.show("Waiting for the processors: %s of node %s left", count(len(n.Pending), "transaction"), name)
		return len(n.Pending) == 0, nil
	})
	switch {
	case err != nil:
		return nil, err
	case !isSettled:
		return nil, fmt.Errorf("node %q has %s still, after %s: kubectl nodekeeper show %s says what they wait for", name, count(len(n.Pending), "pending transaction"), timeout, name)
	case n.Saved.Record == nil:
		return nil, fmt.Errorf("nothing is saved of node %q: only what is saved can be changed", name)
	}
	return n, nil
}

// edited returns the record with the changes. Its version is the moment at which the node was seen to be away.
func (o *setOptions) edited(n *inspect.Node) (record.Record, error) {
	after, err := o.edit.of(n.Saved.Record.Labels, o.mayOverwrite)
	if err != nil {
		return record.Record{}, err
	}
	edited := preserve.Given(n.Name, after, n.Now)
	edited.SavedAt = time.Now()
	if size := txn.DataBytes(edited.ConfigMap("").Data); size > txn.MaxDataBytes {
		return record.Record{}, fmt.Errorf("the labels would have %d bytes: a record has room for %d", size, txn.MaxDataBytes)
	}
	// With the version that it has, a restore that is under way could not be told from one of the edited labels.
	if !isAfter(n.Now, n.Saved.Record.Version) {
		return record.Record{}, fmt.Errorf("the record of node %q is of version %s, and the nodes of this cluster are at %s only: run this again in a moment; "+
			"if the record is of another cluster, kubectl nodekeeper export and import it", n.Name, n.Saved.Record.Version, n.Now)
	}
	return edited, nil
}

// write stores the record, conditional on the one that was read.
func (o *setOptions) write(ctx context.Context, c *cluster, n *inspect.Node, edited record.Record) error {
	cm := n.Saved.Object.DeepCopy()
	edited.Write(cm)
	err := o.dryRun.writer(c).Update(ctx, cm)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("storing the record of node %q: %w", n.Name, err)
	}
	return nil
}

// isAfter says whether one resourceVersion of a Node is after another.
func isAfter(rv, other string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && order > 0
}
