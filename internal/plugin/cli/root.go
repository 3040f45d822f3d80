package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/daemon/version"
)

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams

	config                                                       *genericclioptions.ConfigFlags
	transactionNamespace, metadataNamespace, membershipNamespace string
	// given are the settings of the servers that the command line gives.
	given settings.Settings
	// verbosity is what -v says.
	verbosity int
}

// Main runs the plugin with these arguments and returns its exit code.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	return execute(ctx, NewCommand, args, streams)
}

// execute runs a command with these arguments and returns its exit code.
func execute(ctx context.Context, command func(genericiooptions.IOStreams) *cobra.Command, args []string, streams genericiooptions.IOStreams) int {
	logf.SetLogger(logr.Discard()) // libraries also return the errors that they log
	klog.SetLogger(logr.Discard()) // see logLibraries
	streams.In = &interruptible{in: streams.In, done: ctx.Done()}
	root := command(streams)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, errTold) {
		return codeOf(err)
	}
	_, _ = fmt.Fprintf(streams.ErrOut, "error: %v\n", withAdvice(err)) // there is nobody left to tell
	return codeOf(err)
}

// NewCommand returns the plugin as a command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	p := &plugin{IOStreams: streams, config: genericclioptions.NewConfigFlags(true)}
	p.config.Namespace = nil // nodekeeper has two, with flags of their own
	p.config.CacheDir = nil  // nothing is discovered
	root := &cobra.Command{
		Use:   "kubectl-nodekeeper",
		Short: "Look at, understand and change the saved labels of nodes",
		Long: `nodekeeper keeps the labels of Nodes when their Node objects are deleted, and
puts them back when a node of that name returns.

This plugin shows what is saved, what is pending, and what will happen when a
node comes back; and it saves, restores, edits and moves saved labels by hand,
in the way nodekeeper itself does.

It also shows the rings of the sharder, which spreads the objects of a controller
over its replicas: their shards, and which shard has an object and why.

The exit code is 2 if the command line is wrong; nothing was done then.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nodekeeper"},
		Version:       version.Line("kubectl-nodekeeper"),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          aCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseNamespace(cmd); err != nil {
				return err
			}
			logLibraries(streams.ErrOut, p.verbosity)
			return p.takeGiven(cmd)
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes, by kubectl_complete-nodekeeper
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %s", err, adviceOnFlag(cmd, err))
	})
	cobra.EnableCommandSorting = false // what people need first comes first
	hideGlobalFlags(root)
	p.addFlags(root.PersistentFlags())
	p.addCommands(root)
	refuseUnknownHelp(root)
	return root
}

// addCommands adds the commands, in the order of help.
func (p *plugin) addCommands(root *cobra.Command) {
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look and understand:"}, &cobra.Group{ID: groupAct, Title: "Act:"}, &cobra.Group{ID: groupRings, Title: "Rings of the sharder:"})
	for _, command := range []func(*plugin) *cobra.Command{
		newStatusCommand, newListCommand, newShowCommand, newExplainCommand, newDiffCommand, newPendingCommand, newWatchCommand, newUICommand, newVersionCommand,
	} {
		addTo(root, groupLook, command(p))
	}
	for _, command := range []func(*plugin) *cobra.Command{
		newSaveCommand, newRestoreCommand, newSetCommand, newForgetCommand, newPruneCommand,
		newExportCommand, newImportCommand, newRetryCommand, newDiscardCommand,
	} {
		addTo(root, groupAct, command(p))
	}
	addTo(root, groupRings, newRingsCommand(p))
	addTo(root, groupRings, newOwnerCommand(p))
	root.AddCommand(newOptionsCommand(root))
}

// addFlags adds the flags that every command has.
func (p *plugin) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.transactionNamespace, "transaction-namespace", "node-metadata-transactions", "Namespace of transactions and node locks.")
	flags.StringVar(&p.metadataNamespace, "metadata-namespace", "node-metadata", "Namespace of records.")
	flags.StringVar(&p.membershipNamespace, "membership-namespace", ring.DefaultNamespace, "Namespace of the Leases of the replicas.")
	flags.IntVarP(&p.verbosity, "v", "v", 0, "Log what the libraries do: 6 logs each request, 8 with its body.")
	addViewFlags(flags)
	addNamespaceFlags(flags)
	p.config.AddFlags(flags)
}

func addTo(root *cobra.Command, group string, cmd *cobra.Command) {
	cmd.GroupID = group
	marksBegin(cmd)
	root.AddCommand(cmd)
}

// The groups that help lists the commands in.
const (
	groupLook  = "look"
	groupAct   = "act"
	groupRings = "rings"
)
