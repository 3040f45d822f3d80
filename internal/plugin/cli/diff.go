package cli

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/plugin/cli/changes"
	"nodekeeper.dev/internal/plugin/inspect"
)

func newDiffCommand(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "diff NODE",
		Short: "Compare the saved labels of a node with those that it has",
		Long: `Compare the saved labels of a node with those that it has: lines with - are
saved and not there, lines with + are there and not saved. The marker takes no
part, and neither do labels that are withheld: show lists these. The command
also compares the annotations and taints that the servers preserve.

The exit code is 0 if they are the same, 1 if they differ, and greater than 1 if
the command fails.`,
		Example: `  kubectl nodekeeper diff node-1`,
		Args:    oneNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return comparing(p.diff(cmd.Context(), args))
		},
		ValidArgsFunction: p.names(1, liveNames),
	}
}

func (p *plugin) diff(ctx context.Context, args []string) error {
	_, servers, n, err := p.look(ctx, args)
	switch {
	case err != nil:
		return err
	case n.Saved.Unreadable != nil:
		return fmt.Errorf("the record of node %q: %w: %s", n.Name, n.Saved.Unreadable, n.Saved.Advice())
	case n.Live == nil:
		return fmt.Errorf("node %q is away, so there is nothing to compare with: kubectl nodekeeper show %s shows what is saved", n.Name, n.Name)
	case n.Saved.Record == nil:
		return fmt.Errorf("no labels are saved for node %q: kubectl nodekeeper save %s saves its labels", n.Name, n.Name)
	}
	servers.warn(p.ErrOut, compared, n.Name)
	if maps.Equal(n.Saved.Record.Labels, n.Live.Labels) {
		return nil
	}
	writeDiff(p.Out, n, n.Live.Labels)
	return command.ErrReported
}

func writeDiff(w io.Writer, n *inspect.Node, live map[string]string) {
	d := changes.NewWriter(w)
	d.Minus("-- saved of " + n.Name + ", version " + n.Saved.Record.Revision.String())
	d.Plus("++ on " + n.Name + ", resourceVersion " + n.Live.Revision.String())
	d.Write(n.Saved.Record.Labels, live)
}
