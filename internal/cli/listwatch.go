package cli

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/queue"
)

// watch lists the nodes, and then each one whose line changes. It reads by watches alone.
func (o *listOptions) watch(ctx context.Context, p *plugin, selector apilabels.Selector) error {
	if !o.ForPeople() {
		return misused(fmt.Errorf("--watch shows a table: give it without -o %s", o.Format()))
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	printer, tabs := o.TablePrinter(), printers.GetNewTabWriter(p.Out)
	board, shown, isSynced := inspect.NewBoard(selector), map[string]inspect.Summary{}, false
	show := func(all ...inspect.Summary) {
		for _, s := range all {
			shown[s.Name] = s
		}
		// The writer is gone when the program that reads it is: then the next line ends this one too.
		_ = printer.PrintObj(listView(all, time.Now()).Table, tabs)
		_ = tabs.Flush()
	}
	changed := func(name string) {
		s, isThere := board.Summary(name)
		if isSynced && isThere && o.shows(s) && !reflect.DeepEqual(s, shown[name]) {
			show(s)
		}
	}
	return p.follow(ctx, c, followed{
		node: func(ch change[*metav1.PartialObjectMetadata]) {
			if ch.after == nil {
				board.RemoveNode(ch.before.Name)
				changed(ch.before.Name)
				return
			}
			board.SetNode(ch.after)
			changed(ch.after.Name)
		},
		record: func(ch change[*corev1.ConfigMap]) {
			if ch.after == nil {
				board.RemoveRecord(ch.before.Name)
				changed(ch.before.Name)
				return
			}
			board.SetRecord(ch.after)
			changed(ch.after.Name)
		},
		transaction: func(ch change[*corev1.ConfigMap]) {
			if ch.before != nil && ch.after != nil {
				return // somebody retries it
			}
			cm, more := ch.after, 1
			if ch.after == nil {
				cm, more = ch.before, -1
			}
			if t, err := queue.Parse(cm); err == nil { // else it is of no node
				board.AddPending(t.Node, more)
				changed(t.Node)
			}
		},
		synced: func() {
			isSynced = true
			show(slices.DeleteFunc(board.All(), func(s inspect.Summary) bool { return !o.shows(s) })...)
		},
	})
}
