package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/internal/plugin/inspect"
)

// versions is the data of version.
type versions struct {
	Client   clientVersion    `json:"client"`
	Replicas []replicaVersion `json:"replicas"`
}

type clientVersion struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
}

type replicaVersion struct {
	Name    string `json:"name"`
	Service string `json:"service"`
	IsAlive bool   `json:"alive"`
	Version string `json:"version,omitempty"`
}

func newVersionCommand(p *plugin) *cobra.Command {
	var out output.Flags
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin and of what runs in the cluster",
		Long: `Show the version of this plugin, and those of the watchers, the processors and
the webhooks if there are any, as they publish them. A replica of a release that
does not publish its version is of an unknown one.`,
		Example: `  kubectl nodekeeper version`,
		Args:    command.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.version(cmd.Context(), &out) },
	}
	out.AddFlags(cmd)
	return cmd
}

// version shows the version of the plugin even if the replicas cannot be read.
func (p *plugin) version(ctx context.Context, out *output.Flags) error {
	v := versions{Client: clientVersion{version.Version, version.Commit(), runtime.Version()}, Replicas: []replicaVersion{}}
	var replicas []inspect.Replica
	c, err := p.connect()
	if err == nil {
		replicas, err = c.Replicas(ctx)
	}
	for _, r := range replicas {
		v.Replicas = append(v.Replicas, replicaVersion{r.Name, r.Service, r.IsAlive, r.Version})
	}
	printErr := out.Print(p.Out, output.View{Kind: "Version", Data: &v, Text: func(w io.Writer) {
		line := output.Lines(w)
		line("Plugin", "%s", v.Client.Version)
		if err != nil {
			return
		}
		services := slices.Clone(inspect.Services)
		if slices.ContainsFunc(replicas, func(r inspect.Replica) bool { return r.Service == inspect.WebhookService }) {
			services = append(services, inspect.WebhookService)
		}
		for _, service := range services {
			line(strings.ToUpper(service[:1])+service[1:]+"s", "%s", describeVersions(replicas, service))
		}
	}})
	return cmp.Or(err, printErr)
}

// describeVersions returns the versions of the replicas of a service, or of all replicas if service
// is empty, with their numbers.
func describeVersions(replicas []inspect.Replica, service string) string {
	count := map[string]int{}
	var all []string
	for _, r := range replicas {
		if service != "" && r.Service != service {
			continue
		}
		v := cmp.Or(r.Version, "unknown")
		if count[v]++; count[v] == 1 {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	switch len(all) {
	case 0:
		return output.None
	case 1:
		return all[0]
	}
	for i, v := range all {
		all[i] = fmt.Sprintf("%s (%d)", v, count[v])
	}
	return strings.Join(all, ", ")
}
