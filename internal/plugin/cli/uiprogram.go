package cli

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/daemon/version"
)

// uiUsage is the usage of the program ui, without the flags that it shares with the plugin.
const uiUsage = `Usage:
  {{.UseLine}}

Examples:
{{.Example}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}

It also has the flags that kubectl nodekeeper options lists.
`

// UIMain runs the program that serves the page of kubectl nodekeeper ui in a cluster, and returns its
// exit code. It has the flags of that command.
func UIMain(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	p := newPlugin(streams)
	return p.Execute(ctx, p.newUIProgram(), args)
}

// newUIProgram returns that program as a command.
func (p *plugin) newUIProgram() *cobra.Command {
	root := p.newCommand()
	cmd, _, _ := root.Find([]string{"ui"}) // it exists
	root.RemoveCommand(cmd)
	cmd.PersistentFlags().AddFlagSet(root.PersistentFlags())
	cmd.PersistentPreRunE = root.PersistentPreRunE
	cmd.Flags().Bool("version", false, "print the version and exit")
	cmd.Version = version.Line("ui")
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetIn(p.In)
	cmd.SetOut(p.Out)
	cmd.SetErr(p.ErrOut)
	cmd.SetFlagErrorFunc(root.FlagErrorFunc())
	cmd.SetUsageTemplate(uiUsage)
	cmd.Long = `Serve a page that shows the nodes and their states, the queue, what is saved and
restored as it happens, the saved labels of a node beside its own, and the
replicas. It changes nothing.

The page is on a loopback address, which kubectl port-forward reaches in a pod,
and opens by the link in the log. The link works once, for one browser, which can
then have up to five tabs of the page. When it is used, the next one is in the
log. In a pod, the page has the rights of the ServiceAccount, to look only. See
docs/how-to/use-the-live-page.md.`
	cmd.Example = `  # in a pod, on the port that kubectl port-forward leads to
  ui --port=8080

  # elsewhere, on any free port
  ui --kubeconfig=$HOME/.kube/config`
	return cmd
}
