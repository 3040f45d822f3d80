package cli

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/queue"
)

// gone is the state of a node that was shown, and has neither a Node nor a record any more.
const gone inspect.State = "gone"

// liveList is a list of nodes that watches keep current. Its methods are called sequentially.
type liveList struct {
	options *listOptions
	board   *inspect.Board
	// print prints lines of the table.
	print func(...inspect.Summary)
	// shown has the last printed state of each node.
	shown map[string]inspect.Summary
	// isSynced reports whether the initial list was printed.
	isSynced bool
}

// watch prints the nodes, and then each node whose line changes. It reads only by watches.
func (o *listOptions) watch(ctx context.Context, p *plugin, selector apilabels.Selector) error {
	if !o.ForPeople() {
		return command.UsageError(fmt.Errorf("--watch shows a table: give it without -o %s", o.Format()))
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	printer, tabs := o.TablePrinter(), printers.GetNewTabWriter(p.Out)
	l := &liveList{options: o, board: inspect.NewBoard(selector), shown: map[string]inspect.Summary{}}
	l.print = func(all ...inspect.Summary) {
		// An error means that the reader of a pipe is gone. SIGPIPE then ends the plugin.
		_ = printer.PrintObj(listView(all, c.Now()).Table, tabs)
		_ = tabs.Flush()
	}
	return p.follow(ctx, c, followed{node: l.node, record: l.record, foreign: true, transaction: l.transaction, synced: l.synced})
}

func (l *liveList) node(ch change[*metav1.PartialObjectMetadata]) {
	if ch.after == nil {
		l.board.RemoveNode(ch.before.Name)
		l.changed(ch.before.Name)
		return
	}
	l.board.SetNode(ch.after)
	l.changed(ch.after.Name)
}

func (l *liveList) record(ch change[*corev1.ConfigMap]) {
	if ch.after == nil {
		l.board.RemoveRecord(ch.before.Name)
		l.changed(ch.before.Name)
		return
	}
	l.board.SetRecord(ch.after)
	l.changed(ch.after.Name)
}

func (l *liveList) transaction(ch change[*corev1.ConfigMap]) {
	cm, change := ch.after, l.board.SetPending
	if ch.after == nil {
		cm, change = ch.before, l.board.RemovePending
	}
	if t, err := queue.Parse(cm); err == nil { // a malformed ConfigMap belongs to no node
		change(t)
		l.changed(t.Node)
	}
}

// synced prints the initial list.
func (l *liveList) synced() {
	l.isSynced = true
	all := slices.DeleteFunc(l.board.All(), func(s inspect.Summary) bool { return !l.options.selects(s) })
	for _, s := range all {
		l.shown[s.Name] = s
	}
	l.print(all...)
}

// changed prints the line of a node if it has changed.
func (l *liveList) changed(name string) {
	if !l.isSynced {
		return
	}
	before, isShown := l.shown[name]
	s, isThere := l.board.Summary(name)
	switch {
	case isShown && !l.board.Has(name):
		delete(l.shown, name)
		l.print(inspect.Summary{Name: name, State: gone, UID: before.UID, Source: before.Source})
	case isThere && l.options.selects(s) && !reflect.DeepEqual(s, before):
		l.shown[name] = s
		l.print(s)
	}
}
