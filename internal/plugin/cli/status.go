package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
)

const (
	// shownRestores bounds the latest restores in the output, and shownStuck the stuck objects.
	shownRestores = 5
	shownStuck    = 20
)

// status is the data of status: an overview of all nodes.
type status struct {
	// Unwell has the reasons why nodekeeper does not work, or why its state is unknown. It is empty
	// if all is well.
	Unwell   []string              `json:"unwell"`
	Replicas []inspect.Replica     `json:"replicas"`
	Nodes    map[inspect.State]int `json:"nodes"`
	Records  int                   `json:"records"`
	Pending  pendingStatus         `json:"pending"`
	Locks    []inspect.Lock        `json:"locks"`
	// Malformed is the number of malformed ConfigMaps in the transaction namespace.
	Malformed int           `json:"malformed"`
	Restored  []restoration `json:"lastRestored"`
	// Stuck has the objects that need manual intervention.
	Stuck []problem `json:"stuck"`

	// IsUnknown reports whether the cluster could not be read. Unwell then has the reason.
	IsUnknown bool `json:"-"`
	// asksWebhooks reports whether the API server is configured to ask webhooks.
	asksWebhooks bool `json:"-"` // the converter includes unexported fields
}

type pendingStatus struct {
	Transactions int          `json:"transactions"`
	Nodes        int          `json:"nodes"`
	Oldest       *metav1.Time `json:"oldest,omitempty"`
	OldestNode   string       `json:"oldestNode,omitempty"`
	// CatchingUp reports whether processors apply late transactions. Then no node is stuck that waits
	// in line.
	CatchingUp bool `json:"catchingUp,omitempty"`
}

type restoration struct {
	Node string       `json:"node"`
	At   *metav1.Time `json:"at"`
}

func newStatusCommand(p *plugin) *cobra.Command {
	var out output.Flags
	stuckAfter := time.Minute
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show an overview of nodekeeper's health",
		Long: `Show which replicas run, in which versions and, where they differ, with which
settings; how many nodes are in which state, how many transactions are pending,
and which nodes were restored last.

The first line shows whether nodekeeper is well. If not, the exit code is 1:
no watcher or no processor is ready, a namespace is missing, the API server is
configured to ask webhooks and none is ready, something is stuck, or the cluster
cannot be read. These count as stuck:
  a transaction that has been pending for longer than --stuck-after
  a ConfigMap in the transaction namespace that is not a transaction
  a record that cannot be read
  a node whose deletion has been waiting for nodekeeper's finalizer for longer
  than --stuck-after
  a node that has had the startup taint for longer than --stuck-after, whether or
  not it has the marker that processors look for
  a node whose record has belonged to another Node of its name for longer than
  --stuck-after

A node that waits in a long queue is not stuck while the processors apply late
transactions, and for 30 seconds after the last one, unless it has waited for
more than twice as long as the transactions that they have just applied.

A replica that was killed counts as alive until its Lease ends. The line Silent,
which makes nothing unwell, names replicas that have not renewed their Lease in
time, or whose clock is behind. -o wide shows when each was last heard.`,
		Example: `  # show the status
  kubectl nodekeeper status

  # in a script
  kubectl nodekeeper status >/dev/null || echo "have a look at nodekeeper"

  # with the settings of every replica
  kubectl nodekeeper status -o wide

  # as data
  kubectl nodekeeper status -o jsonpath='{.pending.transactions}'`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return comparing(p.status(cmd.Context(), &out, stuckAfter))
		},
	}
	out.AddFlags(cmd)
	cmd.Flags().DurationVar(&stuckAfter, "stuck-after", stuckAfter, "For how long a transaction may be pending, a deletion wait for the finalizer, or a node have the startup taint.")
	return cmd
}

func (p *plugin) status(ctx context.Context, out *output.Flags, stuckAfter time.Duration) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	survey, err := c.Survey(ctx, apilabels.Everything())
	var closed []inspect.Closed
	if err == nil {
		closed, err = c.ClosedWithoutMarker(ctx, survey)
	}
	now := c.Now()
	var s *status
	if err == nil {
		s = newStatus(survey, closed, now, stuckAfter)
	} else {
		survey, s = &inspect.Survey{}, unknownStatus(p.Explain(err))
	}
	text := func(w io.Writer) { s.write(w, now, out.Wide()) }
	if err := out.Print(p.Out, output.View{Kind: "Status", NamePrefix: nodePrefix, Data: s, Names: namesOf(survey.Nodes), Text: text}); err != nil {
		return err
	}
	if len(s.Unwell) > 0 {
		return command.ErrReported
	}
	return nil
}

// unknownStatus returns the status for an error of reading it.
func unknownStatus(err error) *status {
	return &status{
		Unwell: []string{fmt.Sprintf("the state of nodekeeper is unknown: %v", err)}, IsUnknown: true,
		Replicas: []inspect.Replica{}, Nodes: map[inspect.State]int{}, Locks: []inspect.Lock{}, Restored: []restoration{}, Stuck: []problem{},
	}
}

func newStatus(survey *inspect.Survey, closed []inspect.Closed, now time.Time, stuckAfter time.Duration) *status {
	s := &status{
		Replicas: output.Listed(survey.Replicas), Nodes: map[inspect.State]int{}, Locks: output.Listed(survey.Locks), Malformed: len(survey.Malformed),
		Restored: []restoration{}, Stuck: []problem{}, asksWebhooks: survey.AsksWebhooks,
	}
	restored := slices.Clone(survey.Nodes)
	for _, n := range survey.Nodes {
		s.Nodes[n.State]++
		if n.Version != "" || n.State == inspect.Unreadable && !n.Foreign {
			s.Records++
		}
		if n.State == inspect.Unreadable {
			s.Stuck = append(s.Stuck, problem{n.Name, n.Problem, n.Advice})
		}
	}
	for _, m := range survey.Malformed {
		name := byhand.ShortName(m.Object)
		s.Stuck = append(s.Stuck, problem{name, m.Reason.Error(), "kubectl nodekeeper discard " + name})
	}
	inLine := s.addPending(survey.Pending, now, stuckAfter)
	waiting := slices.DeleteFunc(slices.Clone(survey.Nodes), func(n inspect.Summary) bool { return inLine[n.Name] })
	s.addWaitingDeletions(waiting, now, stuckAfter)
	s.addGated(waiting, now, stuckAfter)
	s.addUnfollowed(survey.Nodes, now, stuckAfter)
	s.addClosed(closed, now, stuckAfter)
	slices.SortStableFunc(restored, func(a, b inspect.Summary) int { return compareTimes(b.RestoredAt, a.RestoredAt) })
	for _, n := range restored {
		if n.RestoredAt != nil && len(s.Restored) < shownRestores {
			s.Restored = append(s.Restored, restoration{n.Name, n.RestoredAt})
		}
	}
	s.Unwell = s.assess(survey)
	return s
}

// assess returns the problems, the worst first.
func (s *status) assess(survey *inspect.Survey) []string {
	unwell := []string{}
	for _, namespace := range survey.MissingNamespaces {
		unwell = append(unwell, fmt.Sprintf("namespace %s is missing", namespace))
	}
	if survey.ReplicasUnknown != nil {
		unwell = append(unwell, fmt.Sprintf("it is unknown which replicas are ready: %v", survey.ReplicasUnknown))
	} else {
		unwell = append(unwell, s.missingServices()...)
	}
	if len(s.Stuck) > 0 {
		unwell = append(unwell, amount.Of(len(s.Stuck), "thing")+" stuck")
	}
	return unwell
}

// missingServices returns the services without a ready replica.
func (s *status) missingServices() (missing []string) {
	for _, service := range inspect.Services {
		if !s.hasReady(service) {
			missing = append(missing, "no ready "+service)
		}
	}
	if s.asksWebhooks && !s.hasReady(inspect.WebhookService) {
		missing = append(missing, "no ready webhook for MutatingWebhookConfiguration "+inspect.WebhookConfiguration)
	}
	return missing
}

func (s *status) hasReady(service string) bool {
	return slices.ContainsFunc(s.Replicas, func(r inspect.Replica) bool { return r.Service == service && r.Ready() })
}

func namesOf(all []inspect.Summary) []string {
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Name
	}
	return names
}
