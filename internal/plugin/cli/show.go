package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
)

// shownNode is the data of show.
type shownNode struct {
	Name      string        `json:"name"`
	State     inspect.State `json:"state"`
	AwaySince *metav1.Time  `json:"awaySince,omitempty"`
	Node      *shownLive    `json:"node,omitempty"`
	Record    *shownRecord  `json:"record,omitempty"`
	// Problem is the parse error of the record.
	Problem string         `json:"problem,omitempty"`
	Pending []shownPending `json:"pending"`
	// Waiting explains why pending transactions are not applied yet.
	Waiting *inspect.Waiting `json:"waiting,omitempty"`
	// Events are the events of nodekeeper's programs about the node, oldest first.
	Events []inspect.Moment `json:"events"`
	// Unknown lists what could not be read because rights are missing.
	Unknown []string `json:"unknown,omitempty"`
}

type shownLive struct {
	UID             string       `json:"uid"`
	ResourceVersion string       `json:"resourceVersion"`
	Marker          string       `json:"marker,omitempty"`
	RestoredAt      *metav1.Time `json:"restoredAt,omitempty"`
	// GatedSince is the time since which it waits for its labels with the startup taint, or nil.
	GatedSince *metav1.Time `json:"gatedSince,omitempty"`
	IsSame     bool         `json:"hasSavedLabels"`
}

type shownRecord struct {
	Labels                  map[string]string `json:"labels"`
	Annotations             map[string]string `json:"annotations,omitempty"`
	Taints                  []corev1.Taint    `json:"taints,omitempty"`
	Version                 string            `json:"version"`
	SavedAt                 *metav1.Time      `json:"savedAt,omitempty"`
	Source                  string            `json:"source,omitempty"`
	RestoredUID             string            `json:"restoredUID,omitempty"`
	RestoredResourceVersion string            `json:"restoredResourceVersion,omitempty"`
	// Machine is the machine of the labels that belong to one, nil if unknown.
	Machine  *shownMachine   `json:"machine,omitempty"`
	Withheld []shownWithheld `json:"withheld,omitempty"`
}

// shownPending is a transaction with its expected effect.
type shownPending struct {
	Node       string       `json:"node"`
	Type       string       `json:"type"`
	Version    string       `json:"version"`
	UID        string       `json:"uid"`
	Labels     int          `json:"labels"`
	Created    *metav1.Time `json:"created"`
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`
	Will       string       `json:"will"`
	Reason     string       `json:"reason"`
}

func newShowCommand(p *plugin) *cobra.Command {
	var out output.Flags
	cmd := &cobra.Command{
		Use:   "show NODE",
		Short: "Show the saved labels of a node, where they came from, and what is pending",
		Long: `Show the saved labels of a node, decoded; the incarnation, version and time that
they came from; the transactions of the node, in order, with what each of them
will do if nothing else happens, and why they are not applied yet; and the events
of nodekeeper about the node.`,
		Example: `  # a node with its saved labels and its pending transactions
  kubectl nodekeeper show node-1

  # its saved labels as data
  kubectl nodekeeper show node-1 -o jsonpath='{.record.labels}'`,
		Args:              oneNode,
		ValidArgsFunction: p.names(1, liveNames, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.show(cmd.Context(), &out, args) },
	}
	out.AddFlags(cmd)
	addPolicyFlags(cmd)
	return cmd
}

func (p *plugin) show(ctx context.Context, out *output.Flags, args []string) error {
	c, servers, n, err := p.look(ctx, args)
	if err != nil {
		return err
	}
	switch {
	case len(n.Pending) > 0:
		servers.warn(p.ErrOut, forecastSettings, n.Name)
	case n.Live != nil && n.Saved.Record != nil: // show compares their labels
		servers.warn(p.ErrOut, compared, n.Name)
	}
	shown := newShownNode(n, servers.policy(n.Name))
	if shown.Waiting, err = c.Waiting(ctx, n, servers.batchPeriod(n.Name)); err != nil {
		return err
	}
	events, err := c.Events(ctx, n.Name)
	if err != nil {
		return err
	}
	shown.Events, shown.Unknown = output.Listed(events.Moments), events.Unknown
	return out.Print(p.Out, output.View{Kind: "NodeDetail", NamePrefix: nodePrefix, Data: shown, Names: []string{n.Name}, Text: func(w io.Writer) { shown.write(w, c.Now()) }})
}

// split splits the entries of a record into labels, annotations and taints.
func (r *shownRecord) split(all map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		annotation, isAnnotation := labels.AsAnnotation(key)
		taint, effect, isTaint := labels.AsTaint(key)
		switch {
		case isAnnotation && r.Annotations == nil:
			r.Annotations = map[string]string{annotation: all[key]}
		case isAnnotation:
			r.Annotations[annotation] = all[key]
		case isTaint:
			r.Taints = append(r.Taints, corev1.Taint{Key: taint, Value: all[key], Effect: corev1.TaintEffect(effect)})
		default:
			r.Labels[key] = all[key]
		}
	}
}

// writeSaved writes the saved entries for people.
func (r *shownRecord) writeSaved(w io.Writer) {
	line := output.Lines(w)
	writeAll := func(name string, all map[string]string) {
		line(name, "%d", len(all))
		for _, key := range slices.Sorted(maps.Keys(all)) {
			_, _ = fmt.Fprintf(w, "  %s=%s\n", key, output.Shown(all[key]))
		}
	}
	writeAll("Labels", r.Labels)
	if len(r.Annotations) > 0 {
		writeAll("Annotations", r.Annotations)
	}
	if len(r.Taints) > 0 {
		line("Taints", "%d", len(r.Taints))
		for i := range r.Taints {
			_, _ = fmt.Fprintf(w, "  %s\n", r.Taints[i].ToString())
		}
	}
}

// look connects, and reads the node in args and the settings of the servers. It returns an error if
// there is nothing of the node.
func (p *plugin) look(ctx context.Context, args []string) (*cluster, *serving, *inspect.Node, error) {
	c, names, err := p.connectFor(args)
	if err != nil {
		return nil, nil, nil, err
	}
	servers, err := p.serve(ctx, c, false)
	if err != nil {
		return nil, nil, nil, err
	}
	n, err := c.findNode(ctx, names[0])
	return c, servers, n, err
}

// findNode reads a node, and returns an error if there is nothing of it.
func (c *cluster) findNode(ctx context.Context, name string) (*inspect.Node, error) {
	n, err := c.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	if !n.Found() {
		return nil, fmt.Errorf("node %q not found, and no labels are saved for it: see kubectl nodekeeper list", name)
	}
	return n, nil
}

func newShownNode(n *inspect.Node, policy labels.Policy) *shownNode {
	s := &shownNode{Name: n.Name, State: n.State(), Pending: newShownPending(n, policy)}
	if n.Live != nil {
		live := n.Live
		s.Node = &shownLive{UID: string(live.UID), ResourceVersion: live.Revision.String(), Marker: live.Marker, RestoredAt: inspect.RestoredAt(live.Marker, live.Managed)}
		if !live.GatedSince.IsZero() {
			s.Node.GatedSince = &metav1.Time{Time: live.GatedSince}
		}
		s.Node.IsSame = n.Saved.Record != nil && maps.Equal(live.Labels, n.Saved.Record.Labels)
	}
	if n.Saved.Unreadable != nil {
		s.Problem = n.Saved.Unreadable.Error()
	}
	if s.State == inspect.Away && n.Saved.Object != nil {
		s.AwaySince = &metav1.Time{Time: n.AwaySince()}
	}
	if r := n.Saved.Record; r != nil {
		s.Record = &shownRecord{
			Labels: map[string]string{}, Version: r.Revision.String(), Source: string(r.Source),
			RestoredUID: string(r.Restored.UID), RestoredResourceVersion: r.Restored.Revision.String(),
		}
		s.Record.split(r.Labels)
		s.Record.Machine, s.Record.Withheld = machineOf(r), withheldOf(n, policy)
		if !r.SavedAt.IsZero() {
			s.Record.SavedAt = &metav1.Time{Time: r.SavedAt}
		}
	}
	return s
}

func newShownPending(n *inspect.Node, policy labels.Policy) []shownPending {
	decisions := n.Forecast(policy)
	shown := make([]shownPending, len(n.Pending))
	for i, t := range n.Pending {
		shown[i] = shownPending{
			Node: n.Name, Type: string(t.Type), Version: t.Revision.String(), UID: string(t.UID), Labels: len(t.Labels),
			Created: &metav1.Time{Time: t.Created}, ObservedAt: &metav1.Time{Time: t.ObservedAt},
			Will: "wait", Reason: "the record of the node cannot be read",
		}
		if i < len(decisions) {
			shown[i].Will, shown[i].Reason = decisions[i].Action.String(), decisions[i].Reason
		}
	}
	return shown
}

// write writes the text for people.
func (s *shownNode) write(w io.Writer, now time.Time) {
	line := output.Lines(w)
	line("Name", "%s", s.Name)
	state := string(s.State)
	if s.AwaySince != nil {
		state += " for " + output.AgeOf(s.AwaySince, now)
	}
	line("State", "%s", state)
	if s.Node != nil {
		line("Node", "uid %s, resourceVersion %s", s.Node.UID, s.Node.ResourceVersion)
		switch {
		case s.Node.GatedSince != nil:
			line("  Restored", "%s", s.describeGate(now))
		case s.Node.Marker != "":
			restored := ""
			if s.Node.RestoredAt != nil {
				restored = output.AgeOf(s.Node.RestoredAt, now) + " ago, "
			}
			line("  Restored", "%sfrom version %s", restored, s.Node.Marker)
		}
	}
	switch {
	case s.Problem != "":
		line("Record", "%s", s.Problem)
	case s.Record == nil:
		line("Record", "none")
	default:
		s.Record.write(line, now)
	}
	if s.Node != nil && s.Record != nil && !s.Node.IsSame {
		line("  Differs", "see kubectl nodekeeper diff %s", s.Name)
	}
	if s.Record != nil {
		s.Record.writeSaved(w)
		writeWithheld(w, s.Record.Withheld)
	}
	s.writePending(w, now)
	s.writeEvents(w, now)
}

// writeEvents writes the events for people.
func (s *shownNode) writeEvents(w io.Writer, now time.Time) {
	line := output.Lines(w)
	for _, missing := range s.Unknown {
		if s.Waiting == nil || !slices.Contains(s.Waiting.Unknown, missing) {
			line("Unknown", "%s", missing)
		}
	}
	if len(s.Events) == 0 {
		if len(s.Unknown) == 0 {
			line("Events", "none")
		}
		return
	}
	line("Events", "%d", len(s.Events))
	for i := range s.Events {
		m := &s.Events[i]
		_, _ = fmt.Fprintf(w, "  %-5s  %s%s\n", output.AgeOf(m.At, now), warningOf(m), output.Harmless(m.Text))
	}
}

// writePending writes the pending transactions for people, with the reasons for their wait.
func (s *shownNode) writePending(w io.Writer, now time.Time) {
	line := output.Lines(w)
	if len(s.Pending) == 0 {
		line("Pending", "nothing")
		return
	}
	line("Pending", "%s", amount.Of(len(s.Pending), "transaction"))
	for _, t := range s.Pending {
		_, _ = fmt.Fprintf(w, "  %s at version %s, %s ago\n    will %s: %s\n", t.Type, t.Version, output.AgeOf(t.Created, now), t.willDo(), t.Reason)
	}
	if s.Waiting != nil {
		writeWaiting(w, s.Waiting, now)
	}
}

// describeGate explains why a node with the startup taint does not have its labels yet.
func (s *shownNode) describeGate(now time.Time) string {
	awaited := "restore its labels"
	if s.Record == nil && s.Problem == "" {
		awaited = "save its labels" // nothing can be restored
	}
	text := fmt.Sprintf("not yet: for %s it has been waiting behind the taint %s for a processor to %s", output.AgeOf(s.Node.GatedSince, now), nodeview.StartupTaintKey, awaited)
	if len(s.Pending) == 0 {
		text += "; nothing is pending: kubectl nodekeeper restore " + s.Name
	}
	return text
}

// willDo describes the expected effect, to follow the word "will".
func (t *shownPending) willDo() string {
	if t.Will == preserve.Nothing.String() {
		return "do nothing"
	}
	return t.Will
}

func (r *shownRecord) write(line output.LineFunc, now time.Time) {
	line("Record", "version %s, saved %s ago", r.Version, output.AgeOf(r.SavedAt, now))
	source := "uid " + r.Source
	if r.Source == "" {
		source = "no incarnation: they were set by hand"
	}
	line("  From", "%s", source)
	if r.RestoredUID != "" {
		line("  Last seen on", "uid %s, at resourceVersion %s", r.RestoredUID, r.RestoredResourceVersion)
	}
}
