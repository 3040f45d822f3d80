package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/labels"
)

// pendingList is the data of pending.
type pendingList struct {
	Items []shownPending `json:"items"`
}

func newPendingCommand(p *plugin) *cobra.Command {
	var out output.Flags
	watching := false
	cmd := &cobra.Command{
		Use:   "pending [NODE]",
		Short: "Show the transactions that are not applied yet, oldest first",
		Long: `Show the transactions that have not taken effect yet, oldest first, with what
each will do. A transaction that restores labels lives for milliseconds, one that saves
labels for --save-delay of the processor, and the end of a node for up to nine times as long. One that stays longer waits
for something.

With --watch, each transaction is shown as it is recorded, and once more as it
is applied.`,
		Example: `  # what is pending, and what it will do
  kubectl nodekeeper pending

  # follow the queue
  kubectl nodekeeper pending --watch`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("give the name of one node, or none: %s", command.Synopsis(cmd))
			}
			return nil
		},
		ValidArgsFunction: p.names(1, liveNames, recordNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watching {
				return p.watchPending(cmd.Context(), &out, args)
			}
			return p.pending(cmd.Context(), &out, args)
		},
	}
	out.AddFlags(cmd)
	addPolicyFlags(cmd)
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "Keep running and show transactions as they come and go.")
	return cmd
}

func (p *plugin) pending(ctx context.Context, out *output.Flags, args []string) error {
	c, names, err := p.connectFor(args)
	if err != nil {
		return err
	}
	servers, err := p.serve(ctx, c, false)
	if err != nil {
		return err
	}
	shown, err := c.pendingOf(ctx, names, servers.policy)
	if err != nil {
		return err
	}
	if len(shown) == 0 && out.ForPeople() {
		_, _ = fmt.Fprintln(p.ErrOut, "Nothing is pending.")
		return nil
	}
	servers.warn(p.ErrOut, forecastSettings, nodesOf(shown)...)
	return out.Print(p.Out, pendingView(shown, c.Now()))
}

// pendingOf returns the pending transactions of one node, or of all nodes if names is empty, the
// node that has waited longest first.
func (c *cluster) pendingOf(ctx context.Context, names []string, policy func(node string) labels.Policy) ([]shownPending, error) {
	if len(names) == 1 {
		n, err := c.findNode(ctx, names[0])
		if err != nil {
			return nil, err
		}
		return newShownPending(n, policy(n.Name)), nil
	}
	pending, _, err := c.Transactions(ctx)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	var order []string
	isPending := map[string]bool{}
	for _, t := range pending {
		if !isPending[t.Node] {
			isPending[t.Node] = true
			order = append(order, t.Node)
		}
	}
	nodes, err := c.Every(ctx, func(name string) bool { return isPending[name] })
	if err != nil {
		return nil, err
	}
	var shown []shownPending
	for _, name := range order {
		if n := nodes[name]; n != nil { // otherwise all were applied in the meantime
			shown = append(shown, newShownPending(n, policy(n.Name))...)
		}
	}
	return shown, nil
}

// nodesOf returns the names of the nodes of transactions without duplicates.
func nodesOf(shown []shownPending) []string {
	var names []string
	for i := range shown {
		if len(names) == 0 || names[len(names)-1] != shown[i].Node { // the transactions of a node are adjacent
			names = append(names, shown[i].Node)
		}
	}
	return names
}

func pendingView(shown []shownPending, now time.Time) output.View {
	v := output.View{Kind: "PendingList", NamePrefix: nodePrefix, Data: &pendingList{Items: output.Listed(shown)}, Names: nodesOf(shown)}
	v.Table = &metav1.Table{ColumnDefinitions: output.Columns("Node", "Type", "Version", "Age", "Labels", "Will", "+Reason", "+UID")}
	for _, t := range shown {
		v.Table.Rows = append(v.Table.Rows, metav1.TableRow{Cells: []any{
			t.Node, t.Type, t.Version, output.AgeOf(t.Created, now), t.Labels, t.Will, t.Reason, t.UID,
		}})
	}
	return v
}
