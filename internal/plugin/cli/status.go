package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/inspect"
)

const (
	// shownRestores bounds the latest restores in the output, and shownStuck the stuck objects.
	shownRestores = 5
	shownStuck    = 20
	// overtakenAfter is by how much longer than the transactions that the processors apply late, as a
	// factor, others have waited that these have overtaken. The order of a queue is not strict.
	overtakenAfter = 2
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

// problem is a stuck object.
type problem struct {
	// Name is the name of a node, or of a ConfigMap in the transaction namespace.
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Advice string `json:"advice"`
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

// addPending adds the queue, and the nodes in it that are stuck. It returns the nodes that wait in
// line while the processors catch up.
func (s *status) addPending(pending []inspect.Pending, now time.Time, stuckAfter time.Duration) (inLine map[string]bool) {
	waiting, inLine := map[string]bool{}, map[string]bool{}
	s.Pending.Transactions = len(pending)
	late := s.lateness()
	s.Pending.CatchingUp = late > 0 && len(pending) > 0
	for _, t := range pending {
		if s.Pending.Oldest == nil || t.Created.Before(s.Pending.Oldest.Time) {
			s.Pending.Oldest, s.Pending.OldestNode = &metav1.Time{Time: t.Created}, t.Node
		}
		switch {
		case waiting[t.Node]:
		case s.Pending.CatchingUp && now.Sub(t.Created) <= stuckAfter+overtakenAfter*late:
			inLine[t.Node] = true
		case now.Sub(t.Created) > stuckAfter:
			s.Stuck = append(s.Stuck, problem{
				t.Node, "a transaction (" + string(t.Type) + ") has been pending for " + duration.HumanDuration(now.Sub(t.Created)),
				"see what it waits for: kubectl nodekeeper show " + t.Node,
			})
		}
		waiting[t.Node] = true
	}
	s.Pending.Nodes = len(waiting)
	return inLine
}

// lateness returns how late processors have just applied transactions at most, and zero if none was
// late.
func (s *status) lateness() (most time.Duration) {
	for _, r := range s.Replicas {
		if r.LateBy != nil {
			most = max(most, r.LateBy.Duration)
		}
	}
	return most
}

// addWaitingDeletions adds the nodes whose deletion waits for nodekeeper's finalizer.
func (s *status) addWaitingDeletions(all []inspect.Summary, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if since := n.DeletionWaitsSince; since != nil && now.Sub(since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "its deletion has been waiting for " + duration.HumanDuration(now.Sub(since.Time)) + " for the finalizer " + nodes.Finalizer,
				"run a processor with --protect=finalizer, which removes it when the labels are saved, or remove it by hand",
			})
		}
	}
}

// addGated adds the nodes that keep the startup taint.
func (s *status) addGated(all []inspect.Summary, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if since := n.GatedSince; since != nil && now.Sub(since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "it has been waiting for " + duration.HumanDuration(now.Sub(since.Time)) + " for its labels behind the taint " + nodeview.StartupTaintKey,
				"a processor removes it with the restore; without one: " + nodeview.OpenCommands(n.Name),
			})
		}
	}
}

// addUnfollowed adds the nodes whose record was replaced. What has the startup taint is
// reported as that.
func (s *status) addUnfollowed(all []inspect.Summary, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if since := n.UnfollowedSince; since != nil && n.GatedSince == nil && now.Sub(since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "its record does not follow it: the record was replaced",
				"to save the labels of the node: kubectl nodekeeper save " + n.Name + "; to restore those of the record: kubectl nodekeeper restore " + n.Name,
			})
		}
	}
}

// addClosed adds the nodes that keep the startup taint because they do not have the marker.
func (s *status) addClosed(all []inspect.Closed, now time.Time, stuckAfter time.Duration) {
	for _, n := range all {
		if now.Sub(n.Since.Time) > stuckAfter {
			s.Stuck = append(s.Stuck, problem{
				n.Name, "the taint " + nodeview.StartupTaintKey + " keeps pods away, and no processor removes it without the label " + labels.Marker + "=" + labels.Pending,
				"add that, and a processor removes the taint once the node has its labels: kubectl label node " + n.Name + " " + labels.Marker + "=" + labels.Pending + " --overwrite",
			})
		}
	}
}

// write writes the text for people, with the settings of all replicas if wide is set.
func (s *status) write(w io.Writer, now time.Time, wide bool) {
	line := output.Lines(w)
	if len(s.Unwell) == 0 {
		line("Status", "well")
	} else {
		line("Status", "unwell: %s", strings.Join(s.Unwell, ", "))
	}
	if s.IsUnknown {
		return
	}
	line("Replicas", "%s", s.describeReplicas())
	writeReplicas(w, s.Replicas, now, wide)
	var states []string
	for _, state := range slices.Backward(inspect.States) {
		if n := s.Nodes[state]; n > 0 || state == inspect.Live {
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	line("Nodes", "%s", strings.Join(states, ", "))
	line("Records", "%d", s.Records)
	pending := "nothing"
	if s.Pending.Oldest != nil {
		pending = fmt.Sprintf("%s of %s, the oldest for %s (%s)", amount.Of(s.Pending.Transactions, "transaction"), amount.Of(s.Pending.Nodes, "node"),
			output.AgeOf(s.Pending.Oldest, now), s.Pending.OldestNode)
		if s.Pending.CatchingUp {
			pending += "; the processors are catching up"
		}
	}
	line("Pending", "%s", pending)
	line("Malformed", "%d", s.Malformed)
	line("Locks", "%s", s.describeLocks())
	restored := make([]string, len(s.Restored))
	for i, r := range s.Restored {
		restored[i] = fmt.Sprintf("%s %s ago", r.Node, output.AgeOf(r.At, now))
	}
	line("Last restored", "%s", output.OrNone(strings.Join(restored, ", ")))
	if len(s.Stuck) == 0 {
		line("Stuck", "nothing")
		return
	}
	line("Stuck", "%s", amount.Of(len(s.Stuck), "thing"))
	for _, one := range s.Stuck[:min(len(s.Stuck), shownStuck)] {
		_, _ = fmt.Fprintf(w, "  %s: %s\n    %s\n", one.Name, one.Reason, one.Advice)
	}
	if len(s.Stuck) > shownStuck {
		_, _ = fmt.Fprintf(w, "  … and %d more: -o yaml shows all\n", len(s.Stuck)-shownStuck)
	}
}

func (s *status) describeReplicas() string {
	ready, all := map[string]int{}, map[string]int{}
	for _, r := range s.Replicas {
		all[r.Service]++
		if r.Ready() {
			ready[r.Service]++
		}
	}
	services := slices.Clone(inspect.Services)
	if s.asksWebhooks || all[inspect.WebhookService] > 0 {
		services = append(services, inspect.WebhookService)
	}
	texts := make([]string, len(services))
	for i, service := range services {
		are := "alive"
		if service == inspect.WebhookService {
			are = "ready"
		}
		texts[i] = "no " + service
		if all[service] > 0 {
			texts[i] = fmt.Sprintf("%d of %s %s", ready[service], amount.Of(all[service], service), are)
		}
	}
	return strings.Join(texts, ", ")
}

func (s *status) describeLocks() string {
	switch {
	case len(s.Locks) == 0:
		return output.None
	case len(s.Locks) > 1:
		return fmt.Sprintf("%s, the first %s by %s", amount.Of(len(s.Locks), "node"), s.Locks[0].Node, s.Locks[0].Holder)
	}
	return s.Locks[0].Node + " by " + s.Locks[0].Holder
}

func namesOf(all []inspect.Summary) []string {
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Name
	}
	return names
}
