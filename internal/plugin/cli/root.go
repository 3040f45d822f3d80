package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
)

// plugin is the state that all commands share.
type plugin struct {
	command.Plugin

	transactionNamespace, metadataNamespace, membershipNamespace string
	// overrides are the settings of the servers that the command line sets.
	overrides settings.Settings
}

// Main runs the plugin with these arguments and returns its exit code.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	p := newPlugin(interruptibleBy(ctx, streams))
	return p.Execute(ctx, p.newCommand(), args)
}

// NewCommand returns the plugin as a command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newPlugin(streams).newCommand()
}

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	connection := genericclioptions.NewConfigFlags(true)
	connection.Namespace = nil // nodekeeper has two, with flags of their own
	connection.CacheDir = nil  // nothing is discovered
	return &plugin{Plugin: command.Plugin{
		IOStreams: streams, Program: "kubectl-nodekeeper", Connection: connection,
		Rights: "Reading needs the rights of nodekeeper-viewer, writing those of nodekeeper-editor: see deploy/users",
	}}
}

func (p *plugin) newCommand() *cobra.Command {
	root := &cobra.Command{
		Short: "Look at, understand and change the saved labels of nodes",
		Long: `nodekeeper keeps the labels of Nodes when their Node objects are deleted, and
restores them when a node of that name returns.

This plugin shows what is saved, what is pending, and what will happen when a
node comes back; and it saves, restores, edits and moves saved labels by hand,
in the way nodekeeper itself does.

The exit code is 2 if the command line is wrong; nothing was done then.`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseNamespace(cmd); err != nil {
				return err
			}
			return p.readOverrides(cmd)
		},
	}
	p.addFlags(root.PersistentFlags())
	return p.Root(root, p.commands(root)...)
}

// commands returns the commands in the order of help.
func (p *plugin) commands(root *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, group := range []struct {
		id, title string
		commands  []func(*plugin) *cobra.Command
	}{
		{"look", "Look and understand:", []func(*plugin) *cobra.Command{
			newStatusCommand, newListCommand, newShowCommand, newExplainCommand, newDiffCommand, newPendingCommand, newWatchCommand, newUICommand, newVersionCommand,
		}},
		{"act", "Act:", []func(*plugin) *cobra.Command{
			newSaveCommand, newRestoreCommand, newSetCommand, newForgetCommand, newPruneCommand,
			newExportCommand, newImportCommand, newRetryCommand, newDiscardCommand,
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, newCommand := range group.commands {
			cmd := newCommand(p)
			cmd.GroupID = group.id
			all = append(all, cmd)
		}
	}
	return all
}

// addFlags adds the global flags of nodekeeper.
func (p *plugin) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.transactionNamespace, "transaction-namespace", "node-metadata-transactions", "Namespace of transactions and node locks.")
	flags.StringVar(&p.metadataNamespace, "metadata-namespace", "node-metadata", "Namespace of records.")
	flags.StringVar(&p.membershipNamespace, "membership-namespace", ring.DefaultNamespace, "Namespace of the Leases of the replicas.")
	addViewFlags(flags)
	addNamespaceFlags(flags)
}
