package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/daemon/version"
)

// Plugin is a kubectl plugin apart from its commands. All fields are required.
type Plugin struct {
	genericiooptions.IOStreams

	// Program is the name of the executable, such as kubectl-rings for kubectl rings.
	Program string
	// Rights follows an error about a request that the API server forbids, and names the rights that
	// the plugin needs.
	Rights string
	// Connection has kubectl's flags. Flags that are nil are left out.
	Connection *genericclioptions.ConfigFlags

	verbosity int
}

// Root completes the root command of the plugin, whose descriptions are set, and adds the commands
// in this order, followed by the command options. It adds the flags in Connection, and -v.
func (p *Plugin) Root(root *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	root.Use = p.Program
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: strings.Replace(p.Program, "-", " ", 1)}
	root.Version = version.Line(p.Program)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Args = subcommand
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes arguments through a script named kubectl_complete-*
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SetFlagErrorFunc(explainFlag)
	cobra.EnableCommandSorting = false // frequent commands come first
	p.addFlags(root.PersistentFlags())
	hideGlobalFlags(root)
	for _, cmd := range commands {
		markBegun(cmd)
		root.AddCommand(cmd)
	}
	root.AddCommand(newOptionsCommand(root))
	refuseUnknownHelp(root)
	p.logBefore(root)
	return root
}

// Execute runs a command of the plugin, prints its error, and returns the exit code.
func (p *Plugin) Execute(ctx context.Context, cmd *cobra.Command, args []string) int {
	logf.SetLogger(logr.Discard()) // libraries also return the errors that they log
	klog.SetLogger(logr.Discard()) // -v sets it again
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, ErrReported) {
		_, _ = fmt.Fprintf(p.ErrOut, "error: %v\n", p.Explain(err)) // stderr is the last resort
	}
	return codeOf(err)
}

// RESTConfig returns the configuration of a client for the cluster that the flags select. It sends no
// request.
func (p *Plugin) RESTConfig() (*rest.Config, error) {
	config, err := p.Connection.ToRESTConfig()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file and the problem
	}
	config.UserAgent = p.Program + "/" + version.Version
	config.QPS = -1 // API Priority and Fairness limits requests where it matters
	return config, nil
}
