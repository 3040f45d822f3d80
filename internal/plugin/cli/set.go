package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/cli/changes"
	"nodekeeper.dev/internal/service/settings"
)

type setOptions struct {
	edit   byhand.Edit
	dryRun dryRun
}

func newSetCommand(p *plugin) *cobra.Command {
	var o setOptions
	cmd := &cobra.Command{
		Use:   "set NODE KEY=VALUE... KEY-...",
		Short: "Edit the saved labels of a node that is away",
		Long: `Edit the saved labels of a node that is away: it has them when it returns.

Labels are checked as kubectl label does. The labels of a node that is there are
changed with kubectl label.

While a watcher runs, this waits until the end of the node is on record and
nothing is pending: the last change of its labels may be on the way. An end that
no watcher saw is never recorded; give --ignore-missing-end then. Events from
before the edit that are recorded later have no effect.`,
		Example: `  # make it return in another rack, and in no team
  kubectl nodekeeper set node-1 rack=r9 example.com/team- --overwrite`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return fmt.Errorf("give the name of a node, and what to change: %s", command.Synopsis(cmd))
			}
			o.edit.Labels, err = byhand.ParseLabelEdit(args[1:])
			return err
		},
		ValidArgsFunction: p.names(1, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.set(cmd.Context(), &o, args[:1]) },
	}
	cmd.Flags().BoolVar(&o.edit.Overwrite, "overwrite", false, "Change the values of existing labels.")
	addDryRunFlag(cmd, &o.dryRun)
	addMissingEndFlag(cmd, &o.edit.IgnoreMissingEnd)
	addTimeoutFlag(cmd, &o.edit.Timeout)
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
	servers, err := p.serve(ctx, c, false)
	if err != nil {
		return err
	}
	servers.warn(p.ErrOut, []string{settings.IgnoreLabels}, names...)
	shown := output.NewProgress(p.ErrOut)
	o.edit.Cluster, o.edit.DryRun, o.edit.Progress = &c.Cluster, o.dryRun.DryRun, shown.Show
	before, after, err := o.edit.Apply(ctx, names[0])
	shown.Done()
	switch {
	case err != nil:
		return err
	case !o.edit.Changes(before, after):
		_, _ = fmt.Fprintf(p.Out, "node/%s not changed: its saved labels are already as requested\n", names[0])
		return nil
	}
	_, _ = fmt.Fprintf(p.Out, "node/%s changed, version %s%s\n", names[0], after.Revision, o.dryRun.suffix())
	changes.Write(p.Out, before.All(), after.All())
	return nil
}
