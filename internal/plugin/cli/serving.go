package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/service/settings"
)

// The settings of the servers that commands use: viewSettings determine the view of a Node, and
// forecastSettings a forecast.
var (
	viewSettings     = []string{settings.MachineManagers, settings.IgnoreLabels, settings.SameMachine, settings.Annotations, settings.Taints}
	forecastSettings = append(slices.Clone(viewSettings), settings.RestoreMode, settings.LiveLabels, settings.Restricted)
	// compared are the settings that determine the comparison of a Node with its record.
	compared = []string{settings.IgnoreLabels, settings.Annotations, settings.Taints}
)

// addViewFlags adds the flags of viewSettings, which every command has.
func addViewFlags(flags *pflag.FlagSet) {
	flags.String(settings.MachineManagers, agents.Default, "Field managers of the machines' agents, if not those that the servers run with.")
	flags.String(settings.IgnoreLabels, labels.DefaultIgnored, "Labels that are neither saved nor restored nor removed, if not those that the servers run with.")
	flags.String(settings.SameMachine, labels.DefaultSameMachine, "Labels that are restored only onto the machine that they were saved from, if not those that the servers run with.")
	flags.String(settings.Annotations, "", "Annotations that are saved and restored like labels, if not those that the servers run with.")
	flags.String(settings.Taints, "", "Taints that are saved and restored like labels, if not those that the servers run with.")
	for _, name := range viewSettings {
		flags.Lookup(name).DefValue = theirs
	}
}

// addPolicyFlags adds flags for the remaining forecastSettings.
func addPolicyFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.String(settings.RestoreMode, string(labels.Replace), "replace or merge, if not what the processors run with. It only changes the forecast.")
	flags.String(settings.LiveLabels, labels.DefaultLive, "Live labels, if not those that the processors run with. It only changes the forecast.")
	flags.String(settings.Restricted, string(labels.SameMachine), "keep, drop or same-machine, if not what the processors run with. It only changes the forecast.")
	for _, name := range []string{settings.RestoreMode, settings.LiveLabels, settings.Restricted} {
		flags.Lookup(name).DefValue = theirs
	}
	command.CompleteFlag(cmd, settings.Restricted, string(labels.SameMachine), string(labels.Keep), string(labels.Drop))
	command.CompleteFlag(cmd, settings.RestoreMode, string(labels.Replace), string(labels.Merge))
}

// theirs is the default of such a flag in help.
const theirs = "what they run with"

// readOverrides stores the settings in the command line, which override those of the servers.
func (p *plugin) readOverrides(cmd *cobra.Command) error {
	p.overrides = settings.Settings{}
	for _, name := range forecastSettings {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		if err := settings.Check(name, f.Value.String()); err != nil {
			return err
		}
		p.overrides[name] = f.Value.String()
	}
	return nil
}

// serving has the settings that a command uses: from the command line, else from the servers, else
// the defaults. It is safe for concurrent use.
type serving struct {
	overrides settings.Settings
	servers   *inspect.Servers
	// namespace is the membership namespace.
	namespace string
	// watcher has the settings that determine what is recorded. They determine the views if
	// isWatchers is set.
	watcher    inspect.Chosen
	isWatchers bool
	// denied is the error if the user may not read the servers.
	denied error

	mu sync.Mutex
	by map[string]parsed // by processor
}

// parsed are parsed settings.
type parsed struct {
	view   nodeview.View
	policy labels.Policy
}

// serve reads the settings of the servers, and sets the views of c to theirs. The settings for a
// node are from the processor that owns it. If recording is set, a live watcher determines the view
// instead. For a user who may not read the servers, the defaults apply.
func (p *plugin) serve(ctx context.Context, c *cluster, recording bool) (*serving, error) {
	s := &serving{overrides: p.overrides, servers: &inspect.Servers{}, namespace: c.MembershipNamespace, by: map[string]parsed{}}
	servers, err := c.Servers(ctx)
	switch {
	case apierrors.IsForbidden(err):
		s.denied = err
	case err != nil:
		return nil, err
	default:
		s.servers = servers
	}
	s.watcher = s.servers.Watcher()
	c.ViewOf = func(node string) nodeview.View { return s.of(node).view }
	if s.isWatchers = recording && s.watcher.Name != "" && !s.watcher.Ended; s.isWatchers {
		view := s.watcher.Settings.With(s.overrides).View()
		c.ViewOf = func(string) nodeview.View { return view }
	}
	return s, nil
}

func (s *serving) of(node string) parsed {
	s.mu.Lock()
	defer s.mu.Unlock()
	chosen := s.servers.Processor(node)
	served, ok := s.by[chosen.Name]
	if !ok {
		all := chosen.Settings.With(s.overrides)
		served = parsed{all.View(), all.Policy()}
		s.by[chosen.Name] = served
	}
	return served
}

// knowsAgents reports whether the view of a node has the agents that the servers run with, or that
// the command line names.
func (s *serving) knowsAgents(node string) bool {
	source := s.watcher
	if !s.isWatchers {
		source = s.servers.Processor(node)
	}
	_, isKnown := source.Settings.With(s.overrides)[settings.MachineManagers]
	return isKnown
}

// batchPeriod returns the batch period of saves of a node, or nil if it is unknown.
func (s *serving) batchPeriod(node string) *time.Duration {
	chosen := s.servers.Processor(node)
	if _, isSaid := chosen.Settings[settings.SaveDelay]; !isSaid {
		return nil
	}
	return new(chosen.Settings.BatchPeriod())
}

// policy returns the restore policy of a node.
func (s *serving) policy(node string) labels.Policy { return s.of(node).policy }

// warn prints notes about the settings that a command needs for these nodes, if they do not come
// from the servers, or if the servers differ.
func (s *serving) warn(w io.Writer, needed []string, nodes ...string) {
	needed = slices.DeleteFunc(slices.Clone(needed), func(name string) bool {
		_, isSet := s.overrides[name]
		return isSet
	})
	if len(needed) == 0 || len(nodes) == 0 {
		return
	}
	chosen := s.servers.Processor(nodes[0])
	advice := "if the servers run with others, give --" + strings.Join(needed, ", --")
	note := func(format string, args ...any) { _, _ = fmt.Fprintf(w, "Note: "+format+".\n", args...) }
	for _, r := range chosen.Unreadable {
		note("the settings of %s cannot be read: %s", r.Name, r.SettingsProblem)
	}
	switch {
	case s.denied != nil:
		note("this uses the default settings, as you may not see those of the servers (%v); %s", s.denied, advice)
	case chosen.Name == "":
		note("this uses the default settings, as no processor in namespace %s publishes its settings; %s", s.namespace, advice)
	case chosen.Ended:
		note("no processor is alive, so this uses the settings of the last one, %s", chosen.Name)
	}
	among := func(differing []string) string {
		return strings.Join(slices.DeleteFunc(differing, func(name string) bool { return !slices.Contains(needed, name) }), ", ")
	}
	if differing := among(chosen.Differing); differing != "" {
		source := "the owner of each node"
		if len(nodes) == 1 {
			source = chosen.Name
		}
		note("the processors differ in %s, so this uses the settings of %s", differing, source)
	} else if differing := among(s.betweenServices(chosen)); differing != "" {
		note("watchers and processors differ in %s, and should not", differing)
	}
}

// betweenServices returns the settings whose values differ between the watchers and a processor.
func (s *serving) betweenServices(chosen inspect.Chosen) []string {
	if s.watcher.Ended || chosen.Ended {
		return nil
	}
	return inspect.Differing([]inspect.Replica{
		{IsAlive: true, Settings: s.watcher.Settings}, {IsAlive: true, Settings: chosen.Settings},
	})
}
