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

// The settings of the servers that a command goes by: those that say what counts of a Node, and
// those that forecasts need.
var (
	viewSettings     = []string{settings.MachineManagers, settings.IgnoreLabels, settings.Annotations, settings.Taints}
	forecastSettings = append(slices.Clone(viewSettings), settings.RestoreMode, settings.LiveLabels, settings.Restricted)
	// compared are those that say what is compared of a Node and its record.
	compared = []string{settings.IgnoreLabels, settings.Annotations, settings.Taints}
)

// addViewFlags adds the flags of viewSettings, which every command has.
func addViewFlags(flags *pflag.FlagSet) {
	flags.String(settings.MachineManagers, agents.Default, "Field managers of the machines' agents, if not those that the servers run with.")
	flags.String(settings.IgnoreLabels, labels.DefaultIgnored, "Labels that are neither saved nor restored nor removed, if not those that the servers run with.")
	flags.String(settings.Annotations, "", "Annotations that are saved and restored like labels, if not those that the servers run with.")
	flags.String(settings.Taints, "", "Taints that are saved and restored like labels, if not those that the servers run with.")
	for _, name := range viewSettings {
		flags.Lookup(name).DefValue = theirs
	}
}

// addPolicyFlags adds the flags of the other forecastSettings.
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

// theirs is what help says of the value that such a flag has if it is not given.
const theirs = "what they run with"

// takeGiven notes the settings that the command line gives, which win over those of the servers.
func (p *plugin) takeGiven(cmd *cobra.Command) error {
	p.given = settings.Settings{}
	for _, name := range forecastSettings {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		if err := settings.Check(name, f.Value.String()); err != nil {
			return err
		}
		p.given[name] = f.Value.String()
	}
	return nil
}

// serving are the settings that a command goes by: those that the command line gives, then those of
// the servers, then the defaults. It is safe for concurrent use.
type serving struct {
	given   settings.Settings
	servers *inspect.Servers
	// namespace is where the servers were looked for.
	namespace string
	// watcher is whose settings say what is recorded.
	watcher inspect.Chosen
	// denied says that the user may not see the servers.
	denied error

	mu sync.Mutex
	by map[string]parsed // by processor
}

// parsed is what settings mean.
type parsed struct {
	view   nodeview.View
	policy labels.Policy
}

// serve reads what the servers run with and has the cluster's Nodes seen as they see them. The
// settings of the processors count, for each node those of its owner; where recording is set, those
// of the watchers say what counts of a Node, while one is alive. A user who may not see the servers is
// served by the defaults.
func (p *plugin) serve(ctx context.Context, c *cluster, recording bool) (*serving, error) {
	s := &serving{given: p.given, servers: &inspect.Servers{}, namespace: c.MembershipNamespace, by: map[string]parsed{}}
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
	if recording && s.watcher.Name != "" && !s.watcher.Ended {
		view := s.watcher.Settings.With(s.given).View()
		c.ViewOf = func(string) nodeview.View { return view }
	}
	return s, nil
}

func (s *serving) of(node string) parsed {
	s.mu.Lock()
	defer s.mu.Unlock()
	chosen := s.servers.Processor(node)
	known, ok := s.by[chosen.Name]
	if !ok {
		all := chosen.Settings.With(s.given)
		known = parsed{all.View(), all.Policy()}
		s.by[chosen.Name] = known
	}
	return known
}

// batchPeriod returns how long the processor of a node lets saves wait, nil if none says so.
func (s *serving) batchPeriod(node string) *time.Duration {
	chosen := s.servers.Processor(node)
	if _, isSaid := chosen.Settings[settings.SaveDelay]; !isSaid {
		return nil
	}
	return new(chosen.Settings.BatchPeriod())
}

// policy returns what a restore of a node goes by.
func (s *serving) policy(node string) labels.Policy { return s.of(node).policy }

// tell says what people must know of the settings which a command needs for these nodes: that they
// are not those of the servers, or that these do not agree.
func (s *serving) tell(w io.Writer, needed []string, nodes ...string) {
	needed = slices.DeleteFunc(slices.Clone(needed), func(name string) bool {
		_, isGiven := s.given[name]
		return isGiven
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
		note("this goes by the default settings, as you may not see those of the servers (%v); %s", s.denied, advice)
	case chosen.Name == "":
		note("this goes by the default settings, as no processor in namespace %s says what it runs with; %s", s.namespace, advice)
	case chosen.Ended:
		note("no processor is alive, so this goes by the settings of the last one, %s", chosen.Name)
	}
	among := func(differing []string) string {
		return strings.Join(slices.DeleteFunc(differing, func(name string) bool { return !slices.Contains(needed, name) }), ", ")
	}
	if differing := among(chosen.Differing); differing != "" {
		whose := "the owner of each node"
		if len(nodes) == 1 {
			whose = chosen.Name
		}
		note("the processors differ in %s, so this goes by the settings of %s", differing, whose)
	} else if differing := among(s.betweenServices(chosen)); differing != "" {
		note("watchers and processors differ in %s, and should not", differing)
	}
}

// betweenServices returns the settings that the watchers have in other values than a processor.
func (s *serving) betweenServices(chosen inspect.Chosen) []string {
	if s.watcher.Ended || chosen.Ended {
		return nil
	}
	return inspect.Differing([]inspect.Replica{
		{IsAlive: true, Settings: s.watcher.Settings}, {IsAlive: true, Settings: chosen.Settings},
	})
}
