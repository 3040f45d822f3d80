package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/plugin/cli/output"
	"nodekeeper.dev/sharding/ringview"
)

// ringList is what rings prints as data.
type ringList struct {
	Items []ringview.Summary `json:"items"`
}

// ringNamePrefix is what -o name prints before the name of a ring.
const ringNamePrefix = "clusterring.sharding.nodekeeper.dev/"

func newRingsCommand(p *plugin) *cobra.Command {
	var out output.Flags
	var o ringOptions
	cmd := &cobra.Command{
		Use:     "rings [NAME]",
		Aliases: []string{"ring"},
		Short:   "Show the rings of the sharder, or one with its shards",
		Long: `Show the rings of the sharder, or one of them with its shards.

A ring is ready when every slot of its table has a shard. AVAILABLE are the
shards that keep their objects: those that are ready, expired or uncertain.
MOVING are the objects in a hand-over, UNASSIGNED those that wait for a shard.
BALANCED is True after a pass over all objects has found nothing to move.

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
		Example: `  # the rings
  kubectl nodekeeper rings

  # one of them, with its shards and conditions
  kubectl nodekeeper rings website

  # the shards that do not renew their Leases
  kubectl nodekeeper rings website -o json | jq -r '.members[] | select(.state != "ready") | .name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("give the name of one ring, or none: %s", usage(cmd))
			}
			return nil
		},
		ValidArgsFunction: p.names(1, p.ringNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.rings(cmd.Context(), &out, &o)
			}
			return p.ring(cmd.Context(), &out, &o, strings.TrimPrefix(args[0], ringNamePrefix))
		},
	}
	out.AddFlags(cmd)
	o.addRingFlags(cmd)
	return cmd
}

func (p *plugin) rings(ctx context.Context, out *output.Flags, o *ringOptions) error {
	c, err := p.connectRings(o)
	if err != nil {
		return err
	}
	all, err := c.Rings(ctx)
	if err != nil {
		return aboutRings(err)
	}
	if len(all) == 0 && out.ForPeople() {
		_, _ = fmt.Fprintln(p.ErrOut, "No rings found.")
		return nil
	}
	return out.Print(p.Out, ringsView(all, time.Now()))
}

func ringsView(all []ringview.Summary, now time.Time) output.View {
	v := output.View{Kind: "RingList", Data: &ringList{Items: output.Listed(all)}, NamePrefix: ringNamePrefix}
	v.Table = &metav1.Table{ColumnDefinitions: output.Columns(
		"Name", "Ready", "Shards", "Available", "Moving", "Unassigned", "Balanced", "Age", "+Table", "+Namespace", "+Resources")}
	for _, r := range all {
		v.Names = append(v.Names, r.Name)
		v.Table.Rows = append(v.Table.Rows, metav1.TableRow{Cells: []any{
			r.Name, string(r.Ready), r.Shards, r.Available, r.Moving, r.Unassigned, string(r.Balanced), output.AgeOf(&r.CreatedAt, now),
			r.Table, r.ShardNamespace, strings.Join(r.Resources, ","),
		}})
	}
	return v
}

func (p *plugin) ring(ctx context.Context, out *output.Flags, o *ringOptions, name string) error {
	c, err := p.connectRings(o)
	if err != nil {
		return err
	}
	r, err := c.Ring(ctx, name)
	if err != nil {
		return aboutRing(err, name)
	}
	r.Members, r.Conditions = output.Listed(r.Members), output.Listed(r.Conditions)
	if r.LeasesProblem != "" {
		_, _ = fmt.Fprintf(p.ErrOut, "Note: %s\n", r.LeasesProblem)
	}
	var written error
	text := func(w io.Writer) { written = writeRing(w, out, r, time.Now()) }
	return errors.Join(out.Print(p.Out, output.View{Kind: "Ring", Data: r, Names: []string{name}, NamePrefix: ringNamePrefix, Text: text}), written)
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
		text += ", and every object is where it says"
	case r.BalancedTable > 0:
		text += fmt.Sprintf("; objects were last where it said at generation %d", r.BalancedTable)
	}
	if r.SilentSlots > 0 {
		text += fmt.Sprintf("; new objects of %d slots go elsewhere, as their shards are silent", r.SilentSlots)
	}
	return text
}

// printIndented prints a table as a part of something.
func printIndented(w io.Writer, out *output.Flags, table *metav1.Table) error {
	var text strings.Builder
	if err := out.TablePrinter().PrintObj(table, &text); err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	for line := range strings.Lines(text.String()) {
		_, _ = io.WriteString(w, "  "+line)
	}
	return nil
}

func conditionsTable(all []metav1.Condition, now time.Time) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: output.Columns("Type", "Status", "Reason", "Since", "Message")}
	for _, c := range all {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{c.Type, string(c.Status), c.Reason, output.AgeOf(&c.LastTransitionTime, now), c.Message}})
	}
	return t
}

func membersTable(all []ringview.Member, now time.Time) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: output.Columns("Name", "State", "Since", "Slots", "Share", "Joined", "+Renewed", "+Protocol", "+Holder")}
	for _, m := range all {
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

// aboutRings adds what to do to an error of a command about rings.
func aboutRings(err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return errors.New("the API server does not serve ClusterRings: install the sharder first (kubectl apply -f sharding/deploy/crd)")
	}
	return ringsError{err}
}

// aboutRing is aboutRings for a command about one ring.
func aboutRing(err error, name string) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) && isRing(status) {
		if status.Status().Details.Name == name {
			return fmt.Errorf("there is no ring %q: see kubectl nodekeeper rings", name)
		}
		return aboutRings(err)
	}
	return ringsError{err}
}

func isRing(e *apierrors.StatusError) bool {
	d := e.Status().Details
	return d == nil || d.Group == "sharding.nodekeeper.dev" || d.Group == ""
}
