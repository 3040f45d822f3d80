package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/queue"
)

func newWatchCommand(p *plugin) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Stream events of nodes",
		Long: `Show, one line each, until it is interrupted:
  recorded   an event of a node is in the queue
  malformed  a ConfigMap in the queue is not a transaction
  saved      the labels of a node are on record
  restored   a node got its labels back
  forgotten  the record of a node is removed`,
		Example: `  kubectl nodekeeper watch`,
		Args:    command.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.watch(cmd.Context()) },
	}
}

func (p *plugin) watch(ctx context.Context) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	t := &happeningPrinter{w: p.Out, now: time.Now}
	return p.follow(ctx, c, followed{transaction: t.transaction, record: t.record, node: t.node})
}

// happeningPrinter prints happenings.
type happeningPrinter struct {
	w   io.Writer
	now func() time.Time
}

func (t *happeningPrinter) print(isInitial bool, h inspect.Happening, isOne bool) {
	if isInitial || !isOne {
		return
	}
	_, _ = fmt.Fprintf(t.w, "%s  %-9s  %s  %s\n", t.now().Format("15:04:05.000"), h.What, cmp.Or(h.Object, h.Node), output.Harmless(h.Text))
}

func (t *happeningPrinter) transaction(c change[*corev1.ConfigMap]) {
	h, isOne := inspect.TransactionHappened(c.before, c.after)
	t.print(c.isInitial, h, isOne)
}

func (t *happeningPrinter) record(c change[*corev1.ConfigMap]) {
	h, isOne := inspect.RecordHappened(c.before, c.after)
	t.print(c.isInitial, h, isOne)
}

func (t *happeningPrinter) node(c change[*metav1.PartialObjectMetadata]) {
	h, isOne := inspect.NodeHappened(c.before, c.after)
	t.print(c.isInitial, h, isOne)
}

// watchPending prints the pending transactions, and then each one that is added or removed.
func (p *plugin) watchPending(ctx context.Context, out *output.Flags, args []string) error {
	names, err := nodeNames(args)
	if err != nil {
		return err
	}
	if !out.ForPeople() {
		return command.UsageError(fmt.Errorf("--watch shows a table: give it without -o %s", out.Format()))
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	printer, tabs := out.TablePrinter(), printers.GetNewTabWriter(p.Out)
	return p.follow(ctx, c, followed{transaction: func(ch change[*corev1.ConfigMap]) {
		event, cm := "recorded", ch.after
		switch {
		case ch.after == nil:
			event, cm = "applied", ch.before
		case ch.isInitial:
			event = "pending"
		case ch.before != nil:
			return // it was touched by a retry
		}
		t, err := queue.Parse(cm)
		if err != nil || len(names) > 0 && names[0] != t.Node {
			return
		}
		// An error means that the reader of a pipe is gone. SIGPIPE then ends the plugin.
		_ = printer.PrintObj(watchedTable(event, t, c.Now()), tabs)
		_ = tabs.Flush()
	}})
}

func watchedTable(event string, t inspect.Pending, now time.Time) *metav1.Table {
	return &metav1.Table{
		ColumnDefinitions: output.Columns("Event", "Node", "Type", "Version", "Labels", "Age", "+UID"),
		Rows: []metav1.TableRow{{Cells: []any{
			event, t.Node, string(t.Type), t.Revision, len(t.Labels), output.AgeOf(&metav1.Time{Time: t.Created}, now), string(t.UID),
		}}},
	}
}
