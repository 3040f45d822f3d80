package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/sharding/internal/ringview"
)

func newShowCommand(p *plugin) *cobra.Command {
	var out output.Flags
	cmd := &cobra.Command{
		Use:   "show RING",
		Short: "Show a ring with its conditions and shards",
		Long: `Show a ring with its conditions and shards.

The state of a shard is one of
  ready       it renews its Lease
  leaving     it gives its objects away, as it is about to end
  expired     it has not renewed its Lease in time: it keeps its objects, and
              new ones go to other shards
  uncertain   the same for twice as long: the sharder takes its Lease over
  dead        its Lease is released or taken over: its objects move
  orphaned    it has been dead for a minute: the sharder deletes its Lease

SHARE is how much of the table a shard has, and SINCE how long it has been in
its state.`,
		Example: `  kubectl rings show website

  # the shards that do not renew their Leases
  kubectl rings show website -o json | jq -r '.members[] | select(.state != "ready") | .name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("give the name of one ring: %s", command.Synopsis(cmd))
			}
			return nil
		},
		ValidArgsFunction: p.completeRing(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.show(cmd.Context(), &out, strings.TrimPrefix(args[0], ringPrefix))
		},
	}
	out.AddFlags(cmd)
	return cmd
}

func (p *plugin) show(ctx context.Context, out *output.Flags, name string) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	r, err := c.Ring(ctx, name)
	if err != nil {
		return explainRing(err, name)
	}
	r.Members, r.Conditions = output.Listed(r.Members), output.Listed(r.Conditions)
	if r.LeasesProblem != "" {
		_, _ = fmt.Fprintf(p.ErrOut, "Note: %s\n", r.LeasesProblem)
	}
	var written error
	text := func(w io.Writer) { written = writeRing(w, out, r, time.Now()) }
	return errors.Join(out.Print(p.Out, output.View{Kind: "Ring", Data: r, Names: []string{name}, NamePrefix: ringPrefix, Text: text}), written)
}

func writeRing(w io.Writer, out *output.Flags, r *ringview.Ring, now time.Time) error {
	line := output.Lines(w)
	line("Name", "%s", r.Name)
	if r.IsDeleted {
		line("Deleted", "the sharder removes the labels of its objects, and then the ring")
	}
	line("Age", "%s", output.AgeOf(&r.CreatedAt, now))
	line("Resources", "%s", strings.Join(r.Resources, ", "))
	line("Shards", "%d, %d of them available", r.Shards, r.Available)
	line("Leases in", "%s", r.ShardNamespace)
	line("Objects", "%d moving, %d unassigned", r.Moving, r.Unassigned)
	line("Table", "%s", describeTable(r))
	_, _ = fmt.Fprintln(w, "Conditions:")
	if err := printIndented(w, out, conditionsTable(r.Conditions, now)); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "Members:")
	if len(r.Members) == 0 {
		_, _ = fmt.Fprintf(w, "  none: a shard is a Lease in namespace %s with the label of this ring\n", r.ShardNamespace)
		return nil
	}
	return printIndented(w, out, membersTable(r.Members, now))
}

func describeTable(r *ringview.Ring) string {
	if r.Table == 0 {
		return "none yet"
	}
	text := fmt.Sprintf("generation %d", r.Table)
	switch {
	case r.BalancedTable == r.Table:
		text += ", and every object is at its shard"
	case r.BalancedTable > 0:
		text += fmt.Sprintf("; every object was last at its shard at generation %d", r.BalancedTable)
	}
	if r.SilentSlots > 0 {
		text += fmt.Sprintf("; new objects of %d slots go elsewhere, as their shards are silent", r.SilentSlots)
	}
	return text
}

// printIndented prints a table as a part of a text.
func printIndented(w io.Writer, out *output.Flags, table *metav1.Table) error {
	var text strings.Builder
	if err := out.TablePrinter().PrintObj(table, &text); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		_, _ = io.WriteString(w, "  "+line)
	}
	return nil
}

func conditionsTable(conditions []metav1.Condition, now time.Time) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: output.Columns("Type", "Status", "Reason", "Since", "Message")}
	for _, c := range conditions {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{c.Type, string(c.Status), c.Reason, output.AgeOf(&c.LastTransitionTime, now), c.Message}})
	}
	return t
}

func membersTable(members []ringview.Member, now time.Time) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: output.Columns("Name", "State", "Since", "Slots", "Share", "Joined", "+Renewed", "+Protocol", "+Holder")}
	for _, m := range members {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{
			m.Name, m.State, output.AgeOf(m.Since, now), m.Slots, strconv.FormatFloat(m.Share, 'f', 1, 64) + "%",
			microAge(m.JoinedAt, now), microAge(m.RenewedAt, now), output.OrNone(m.Protocol), output.OrNone(m.Holder),
		}})
	}
	return t
}

func microAge(t *metav1.MicroTime, now time.Time) string {
	if t.IsZero() {
		return output.None
	}
	return duration.HumanDuration(now.Sub(t.Time))
}
