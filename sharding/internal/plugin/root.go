package plugin

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/sharding/api/v1alpha1"
)

// plugin is the state that all commands share.
type plugin struct {
	command.Plugin

	// prefix and sharderNamespace must match the flags of the sharder.
	prefix, sharderNamespace string
}

// Main runs the plugin with these arguments and returns its exit code.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	p := newPlugin(streams)
	return p.Execute(ctx, p.newCommand(), args) //nolint:contextcheck // a command gets the context when it runs
}

// NewCommand returns the plugin as a command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newPlugin(streams).newCommand()
}

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	connection := genericclioptions.NewConfigFlags(true)
	connection.CacheDir = nil // the default of the flag depends on $HOME, and the docs show defaults
	return &plugin{Plugin: command.Plugin{
		IOStreams: streams, Program: "kubectl-rings", Connection: connection,
		Rights: "Looking at rings needs get and list of clusterrings.sharding.nodekeeper.dev, list of leases in the namespace of the shards, and get of the object",
	}}
}

func (p *plugin) newCommand() *cobra.Command {
	root := &cobra.Command{
		Short: "Show the rings of the sharder, their shards, and the owners of objects",
		Long: `The sharder distributes the objects of a controller among its replicas. A ring is
a set of such replicas, its shards.

This plugin shows the rings and their shards, and which shard owns an object and
why. It changes nothing.

The exit code is 2 if the command line is wrong.`,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.prefix, "label-prefix", string(v1alpha1.DefaultPrefix), "Prefix of sharding labels. Rings of --compat=timebertt have their own.")
	flags.StringVar(&p.sharderNamespace, "sharder-namespace", "sharder-system", "Namespace of the sharder, whose objects do not belong to a ring by default.")
	return p.Root(root, newListCommand(p), newShowCommand(p), newOwnerCommand(p), newVersionCommand(p))
}
