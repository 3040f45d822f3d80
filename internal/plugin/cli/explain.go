package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
)

// explained is the data of explain.
type explained struct {
	inspect.Story

	Name  string        `json:"name"`
	State inspect.State `json:"state"`
	// Summary describes the state in one sentence.
	Summary string `json:"summary"`
	// Problem is the parse error of the record.
	Problem string `json:"problem,omitempty"`
	// Labels are the labels that differ between the Node and its record.
	Labels   []inspect.LabelReason `json:"labels"`
	Withheld []shownWithheld       `json:"withheld,omitempty"`
	// Waiting explains why pending transactions are not applied yet.
	Waiting *inspect.Waiting `json:"waiting,omitempty"`
}

func newExplainCommand(p *plugin) *cobra.Command {
	var out output.Flags
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Explain what happened to a node, and why it does not have its labels",
		Long: `Explain what happened to a node, oldest first: from the Node, its record, its
transactions and the events of nodekeeper. Then explain each label that differs
between the Node and its record, and why pending transactions still wait.

The story has gaps: a record holds only the last state that was saved, and the
API server deletes events after an hour by default.`,
		Example: `  # why does node-1 not have its labels?
  kubectl nodekeeper explain node-1`,
		Args:              oneNode,
		ValidArgsFunction: p.names(1, liveNames, recordNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.explain(cmd.Context(), &out, args) },
	}
	out.AddFlags(cmd)
	addPolicyFlags(cmd)
	return cmd
}

func (p *plugin) explain(ctx context.Context, out *output.Flags, args []string) error {
	c, servers, n, err := p.look(ctx, args)
	if err != nil {
		return err
	}
	servers.warn(p.ErrOut, forecastSettings, n.Name)
	policy := servers.policy(n.Name)
	story, err := c.Story(ctx, n, policy)
	if err != nil {
		return err
	}
	e := newExplained(n, story, policy)
	if e.Waiting, err = c.Waiting(ctx, n, servers.batchPeriod(n.Name)); err != nil {
		return err
	}
	return out.Print(p.Out, output.View{Kind: "NodeStory", NamePrefix: nodePrefix, Data: e, Names: []string{n.Name}, Text: func(w io.Writer) { e.write(w, c.Now()) }})
}

func newExplained(n *inspect.Node, story *inspect.Story, policy labels.Policy) *explained {
	e := &explained{Story: *story, Name: n.Name, State: n.State(), Labels: output.Listed(n.LabelReasons(policy))}
	e.Moments = output.Listed(e.Moments)
	if n.Saved.Unreadable != nil {
		e.Problem = n.Saved.Unreadable.Error()
	}
	if n.Saved.Record != nil {
		e.Withheld = withheldOf(n, policy)
	}
	e.Summary = e.summarize(n)
	return e
}

// summarize describes the state in one sentence.
func (e *explained) summarize(n *inspect.Node) string {
	switch {
	case e.Problem != "":
		return "The record cannot be read, so nothing is saved or restored: " + n.Saved.Advice()
	case e.State == inspect.Away && n.Saved.Record == nil:
		return "There is no Node of this name, and no labels are saved for it: only the pending transactions are known."
	case e.State == inspect.Away:
		return fmt.Sprintf("There is no Node of this name. When one is created, it gets %s.", amount.Of(len(n.Saved.Record.Labels), "label"))
	case e.State == inspect.Restoring && len(n.Pending) == 0:
		return "The node does not have its saved labels, and no transaction is pending that restores them: kubectl nodekeeper restore " + n.Name
	case e.State == inspect.Restoring:
		return "The node does not have its saved labels yet."
	case n.Saved.Record == nil:
		return "No labels are saved for this node: no watcher has recorded it, or no processor has saved it yet."
	case len(e.Labels) == 0 && len(e.Withheld) > 0:
		return "The node has its saved labels, except for those that are withheld."
	case len(e.Labels) == 0:
		return "The node has its saved labels."
	}
	return "The node had its saved labels, and has changed since."
}

// write writes the text for people.
func (e *explained) write(w io.Writer, now time.Time) {
	line := output.Lines(w)
	line("Name", "%s", e.Name)
	line("State", "%s", e.State)
	if e.Problem != "" {
		line("Record", "%s", e.Problem)
	}
	_, _ = fmt.Fprintln(w, "What happened, and how long ago:")
	for i := range e.Moments {
		m := &e.Moments[i]
		_, _ = fmt.Fprintf(w, "  %-5s  %-11s  %s%s\n", output.AgeOf(m.At, now), m.Source, warningOf(m), output.Harmless(m.Text))
	}
	line("What is now", "%s", e.Summary)
	for _, l := range e.Labels {
		_, _ = fmt.Fprintf(w, "  %s: %s, %s\n    %s\n", l.Key, valued("saved", l.Saved), valued("on the node", l.Live), output.Harmless(l.Why))
	}
	writeWithheld(w, e.Withheld)
	if e.Waiting != nil {
		writeWaiting(w, e.Waiting, now)
	}
	for _, missing := range e.Unknown {
		if e.Waiting == nil || !slices.Contains(e.Waiting.Unknown, missing) {
			line("Unknown", "%s", missing)
		}
	}
}

// warningOf returns the prefix of a warning.
func warningOf(m *inspect.Moment) string {
	if m.Warning {
		return "Warning "
	}
	return ""
}

// valued describes the value of a label in one of two places, nil if it is absent.
func valued(where string, value *string) string {
	switch {
	case value == nil:
		return "not " + where
	case *value == "":
		return where + " without a value"
	}
	return where + " as " + output.Shown(*value)
}
