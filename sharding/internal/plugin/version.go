package plugin

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/daemon/version"
)

// build is the data of version.
type build struct {
	Client struct {
		Version   string `json:"version"`
		Commit    string `json:"commit"`
		GoVersion string `json:"goVersion"`
	} `json:"client"`
}

func newVersionCommand(p *plugin) *cobra.Command {
	var out output.Flags
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of the plugin",
		Long:    "Show the version of the plugin. It sends no request.",
		Example: `  kubectl rings version`,
		Args:    command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var b build
			b.Client.Version, b.Client.Commit, b.Client.GoVersion = version.Version, version.Commit(), runtime.Version()
			return out.Print(p.Out, output.View{Kind: "Version", Data: &b, Text: func(w io.Writer) {
				output.Lines(w)("Plugin", "%s", b.Client.Version)
			}})
		},
	}
	out.AddFlags(cmd)
	return cmd
}
