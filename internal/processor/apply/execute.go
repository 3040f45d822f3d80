package apply

import (
	"context"
	"time"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// execute executes a plan up to its first write of the Node. The next plan needs the answer to that
// write.
func (a *Applier) execute(ctx context.Context, steps []preserve.Step, r *run) (err error) {
	for _, step := range steps {
		switch step.Action {
		case preserve.Nothing:
			err = a.keepAlive(ctx, &r.view)
		case preserve.Save:
			err = a.save(ctx, step.Record, &r.view)
		case preserve.Restore:
			var isSetAside bool
			if isSetAside, err = a.restore(ctx, r.queue[r.settled], step, &r.view); isSetAside {
				return err // another plan follows, without the label
			}
		case preserve.Open:
			err = a.open(ctx, r.queue[r.settled], step, &r.view)
		}
		if err != nil {
			return err
		}
		if step.WritesNode() {
			r.settled += step.Settles()
			return nil
		}
		a.report(ctx, r.queue[r.settled:], step) // before an error: the next attempt plans nothing more
		// The webhook or an interrupted attempt may have set the labels.
		if err := a.giveBack(ctx, r.queue[r.settled], &r.view); err != nil {
			return err
		}
		r.settled += step.Settles()
	}
	return nil
}

// report passes the transactions of a step without a restore, which the queue begins with, to the
// observer. All saves of a step are one write: only the one that changed the labels, if any, is
// reported as a save.
func (a *Applier) report(ctx context.Context, queue []txn.Transaction, step preserve.Step) {
	reported := -1
	for i, d := range step.Decisions {
		if d.Action == preserve.Save && !d.Again && (reported < 0 || !d.IsNote() || step.Decisions[reported].IsNote()) {
			reported = i
		}
	}
	for i, d := range step.Decisions {
		t := queue[0]
		for _, held := range d.Held {
			a.Observer.Withheld(ctx, t, held)
		}
		if d.Renews {
			a.Observer.Renewed(ctx, t)
		}
		if d.Again {
			continue
		}
		if d.Action == preserve.Save && i != reported {
			d = preserve.Decision{Reason: preserve.Superseded}
		}
		a.Observer.Applied(ctx, t, d, nil)
		queue = queue[1:]
	}
}

// keepAlive removes the annotation away-since by rewriting the record that has it, since any event
// of the node is a sign of life.
func (a *Applier) keepAlive(ctx context.Context, v *view) error {
	if v.stored.Object == nil || v.stored.Object.Annotations[record.AwaySinceAnnotation] == "" {
		return nil
	}
	return a.save(ctx, *v.stored.Record, v)
}

// save replaces the known record. Success proves that it was current.
func (a *Applier) save(ctx context.Context, next record.Record, v *view) error {
	stored, err := a.Records.Write(ctx, v.stored, next)
	if err != nil {
		return err
	}
	v.stored, v.current = stored, true
	return nil
}

// restore sets the labels and the marker of the Node in one write, notes the restore in the record,
// then gives the labels back to their owners. After a crash in between the next attempt finds the
// marker, or the note. If a label is refused, it is set aside instead.
func (a *Applier) restore(ctx context.Context, t txn.Transaction, step preserve.Step, v *view) (isSetAside bool, err error) {
	wanted := nodes.Wanted{Labels: step.Labels, Marker: step.Marker}
	read := v.node
	if err := a.relabel(ctx, t, step, wanted, v); err != nil {
		if refusal := asRefused(err); refusal != nil {
			return true, a.setAside(ctx, t, wanted, v, refusal)
		}
		return false, err
	}
	for _, held := range step.Held {
		a.Observer.Withheld(ctx, t, held)
	}
	// Note the answer, not the request: admission plugins may add and remove labels.
	if err := a.save(ctx, preserve.Noted(*v.stored.Record, *read, *v.node, a.Policy.MachineBound), v); err != nil {
		return false, err
	}
	return false, a.giveBack(ctx, t, v)
}

// open removes the startup taint and the marker from a Node, and keeps its labels.
func (a *Applier) open(ctx context.Context, t txn.Transaction, step preserve.Step, v *view) error {
	return a.relabel(ctx, t, step, nodes.Wanted{Labels: v.node.Labels}, v)
}

// relabel replaces the labels of the known Node, and removes its startup taint if it has one.
func (a *Applier) relabel(ctx context.Context, t txn.Transaction, step preserve.Step, wanted nodes.Wanted, v *view) error {
	began := time.Now()
	node, err := a.Nodes.Relabel(ctx, v.node, wanted, v.readAt)
	if nodes.Refused(err) || nodes.LacksRight(err) {
		return &RefusedError{Node: t.Node, UID: t.UID, Err: err}
	}
	if err != nil {
		return err
	}
	a.Observer.Applied(ctx, t, step.Decision, node)
	v.node, v.readAt, v.gaveBack = node, began, false
	return nil
}
