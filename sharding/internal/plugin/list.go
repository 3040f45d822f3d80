package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/sharding/internal/ringview"
)

// ringList is the data of list.
type ringList struct {
	Items []ringview.Summary `json:"items"`
}

// ringPrefix precedes the names of rings in -o name.
const ringPrefix = "clusterring.sharding.nodekeeper.dev/"

func newListCommand(p *plugin) *cobra.Command {
	var out output.Flags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the rings",
		Long: `List the rings.

A ring is ready when every slot of its table has a shard. AVAILABLE are the
shards that keep their objects: those that are ready, expired or uncertain.
MOVING are the objects in a hand-over, UNASSIGNED those that wait for a shard.
BALANCED is True after a pass over all objects has found nothing to move.`,
		Example: `  kubectl rings list`,
		Args:    command.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.list(cmd.Context(), &out) },
	}
	out.AddFlags(cmd)
	return cmd
}

func (p *plugin) list(ctx context.Context, out *output.Flags) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	rings, err := c.Rings(ctx)
	if err != nil {
		return explainRings(err)
	}
	if len(rings) == 0 && out.ForPeople() {
		_, _ = fmt.Fprintln(p.ErrOut, "No rings found.")
		return nil
	}
	return out.Print(p.Out, ringsView(rings, time.Now()))
}

func ringsView(rings []ringview.Summary, now time.Time) output.View {
	v := output.View{Kind: "RingList", Data: &ringList{Items: output.Listed(rings)}, NamePrefix: ringPrefix}
	v.Table = &metav1.Table{ColumnDefinitions: output.Columns(
		"Name", "Ready", "Shards", "Available", "Moving", "Unassigned", "Balanced", "Age", "+Table", "+Namespace", "+Resources")}
	for _, r := range rings {
		v.Names = append(v.Names, r.Name)
		v.Table.Rows = append(v.Table.Rows, metav1.TableRow{Cells: []any{
			r.Name, string(r.Ready), r.Shards, r.Available, r.Moving, r.Unassigned, string(r.Balanced), output.AgeOf(&r.CreatedAt, now),
			r.Table, r.ShardNamespace, strings.Join(r.Resources, ","),
		}})
	}
	return v
}
