package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/inspect"
)

// nodeList is the data of list.
type nodeList struct {
	Items []inspect.Summary `json:"items"`
}

// orders are the sort orders of a list.
var orders = map[string]func(a, b inspect.Summary) int{
	"name":     func(inspect.Summary, inspect.Summary) int { return 0 }, // already sorted
	"state":    func(a, b inspect.Summary) int { return cmp.Compare(rank(a.State), rank(b.State)) },
	"labels":   func(a, b inspect.Summary) int { return cmp.Compare(a.Labels, b.Labels) },
	"version":  func(a, b inspect.Summary) int { return compareVersions(a.Version, b.Version) },
	"saved":    func(a, b inspect.Summary) int { return compareTimes(a.SavedAt, b.SavedAt) },
	"away":     func(a, b inspect.Summary) int { return compareTimes(a.AwaySince, b.AwaySince) },
	"restored": func(a, b inspect.Summary) int { return compareTimes(a.RestoredAt, b.RestoredAt) },
}

type listOptions struct {
	output.Flags

	selector string
	states   []string
	sortBy   string
	watching bool
}

func newListCommand(p *plugin) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List nodes and records",
		Long: `List every node that exists or has saved labels.

The state of a node is one of
  live         it has its labels, and they are on record
  restoring    it is back, and does not have its saved labels yet
  away         there is no such node, but its labels are saved
  never-seen   no labels are saved for it
  unreadable   its record cannot be read: kubectl nodekeeper explain shows what to do

With --watch, a node whose Node and record are both gone is shown once more, in the
state gone.

AWAY is how long ago a node was deleted or, if that is unknown, last heard of.
WITHHELD, which -o wide shows, is how many labels of a machine were not restored:
kubectl nodekeeper show explains why.`,
		Example: `  # every node
  kubectl nodekeeper list

  # those that are away, the longest first
  kubectl nodekeeper list --state=away --sort-by=away

  # those of a rack, with their incarnations
  kubectl nodekeeper list -l rack=r7 -o wide

  # follow their states
  kubectl nodekeeper list --watch`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) },
	}
	o.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "Selector (label query) of the labels of the Node, or of the saved ones if it is away.")
	flags.StringSliceVar(&o.states, "state", nil, "Show only nodes in these states.")
	flags.StringVar(&o.sortBy, "sort-by", "name", "Sort by one of: ("+strings.Join(slices.Sorted(maps.Keys(orders)), ", ")+").")
	flags.BoolVarP(&o.watching, "watch", "w", false, "After the list, keep running and show each node whose line changes.")
	command.CompleteFlag(cmd, "state", stateNames()...)
	command.CompleteFlag(cmd, "sort-by", slices.Sorted(maps.Keys(orders))...)
	return cmd
}

func (o *listOptions) run(ctx context.Context, p *plugin) error {
	selector, err := apilabels.Parse(o.selector)
	if err != nil {
		return command.UsageError(fmt.Errorf("--selector: %w", err))
	}
	if err := oneOf("--sort-by", o.sortBy, slices.Sorted(maps.Keys(orders))...); err != nil {
		return err
	}
	for _, state := range o.states {
		if err := oneOf("--state", state, stateNames()...); err != nil {
			return err
		}
	}
	if o.watching {
		return o.watch(ctx, p, selector)
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	survey, err := c.Survey(ctx, selector)
	if err != nil {
		return err
	}
	nodes := slices.DeleteFunc(survey.Nodes, func(s inspect.Summary) bool { return !o.selects(s) })
	slices.SortStableFunc(nodes, orders[o.sortBy])
	if len(nodes) == 0 && o.ForPeople() {
		_, _ = fmt.Fprintln(p.ErrOut, "No nodes found.")
		return nil
	}
	return o.Print(p.Out, listView(nodes, c.Now()))
}

// selects reports whether --state includes the state of a node.
func (o *listOptions) selects(s inspect.Summary) bool {
	return len(o.states) == 0 || slices.Contains(o.states, string(s.State))
}

func listView(nodes []inspect.Summary, now time.Time) output.View {
	v := output.View{Kind: "NodeList", NamePrefix: nodePrefix, Data: &nodeList{Items: output.Listed(nodes)}}
	v.Table = &metav1.Table{ColumnDefinitions: output.Columns(
		"Name", "State", "Labels", "Version", "Saved", "Away", "Pending", "+Restored", "+Withheld", "+UID", "+Source")}
	for _, s := range nodes {
		v.Names = append(v.Names, s.Name)
		v.Table.Rows = append(v.Table.Rows, metav1.TableRow{Cells: []any{
			s.Name, string(s.State), s.Labels, output.OrNone(s.Version), output.AgeOf(s.SavedAt, now), output.AgeOf(s.AwaySince, now), s.Pending,
			output.AgeOf(s.RestoredAt, now), withheld(s), output.OrNone(s.UID), output.OrNone(s.Source),
		}})
	}
	return v
}

// withheld returns the number of labels of a machine that were not restored.
func withheld(s inspect.Summary) string {
	switch {
	case s.Withheld == 0:
		return output.OrNone("")
	case s.WaitingUID != "":
		return strconv.Itoa(s.Withheld) + " (waiting)"
	}
	return strconv.Itoa(s.Withheld)
}

func stateNames() []string {
	names := make([]string, len(inspect.States))
	for i, state := range inspect.States {
		names[i] = string(state)
	}
	return names
}

// rank returns the position of a state in a sorted list: the ones that need attention come first.
func rank(s inspect.State) int { return slices.Index(inspect.States, s) }

// compareTimes sorts unknown times last.
func compareTimes(a, b *metav1.Time) int {
	if a == nil || b == nil {
		return cmp.Compare(boolToInt(a == nil), boolToInt(b == nil))
	}
	return a.Compare(b.Time)
}

// compareVersions sorts empty versions last.
func compareVersions(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(boolToInt(a == ""), boolToInt(b == ""))
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return 0 // records with such versions are unreadable, and have none here
	}
	return order
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
