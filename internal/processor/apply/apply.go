// Package apply carries out transactions: it reads the Node and its record once, plans, and
// executes the plan by conditional writes. If a write finds that an object has changed, it starts
// over with live reads.
//
// The package is the only writer of restores. Any number of processes may apply the same
// transactions at once: every write has a precondition, and a transaction that has had its effect
// has no further one.
package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/owners"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// maxConflicts bounds the conflicts that are retried at once. More in a row mean that another
// client writes continuously; the node then backs off.
const maxConflicts = 10

// maxIdle bounds consecutive plans that settle no transaction. Withheld labels take two.
const maxIdle = 2 * maxConflicts

// Nodes reads and writes live Nodes.
type Nodes interface {
	// Get returns a Node with its taints and the identity of its machine, or nil if it does not exist.
	Get(ctx context.Context, name string) (*nodeview.Node, error)
	// Now returns the current revision of all Nodes.
	Now(ctx context.Context) (revision.Revision, error)
	// Relabel replaces the labels of a Node, conditional on the Node that was read: all of it, or if
	// that read began only just before, what is replaced and the marker. It returns the resulting
	// Node, or [nodes.ErrStale].
	Relabel(ctx context.Context, read *nodeview.Node, wanted nodes.Wanted, readAt time.Time) (*nodeview.Node, error)
	// GiveBack gives the labels that restores have set on the Node back to their owners, unless it has
	// others by now. It returns [nodes.ErrStale] if others keep changing the Node.
	GiveBack(ctx context.Context, read *nodeview.Node, to owners.Owners) error
	// TryRelabel is a dry run of Relabel.
	TryRelabel(ctx context.Context, read *nodeview.Node, wanted nodes.Wanted, readAt time.Time) error
}

// Records reads and writes the records of nodes.
type Records interface {
	// Cached returns a record from a cache, which may be stale; Get reads it from the API server. Both
	// return the zero value if the node has no record.
	Cached(ctx context.Context, node string) (records.Stored, error)
	Get(ctx context.Context, node string) (records.Stored, error)
	// Write stores a record, conditional on the record that was read, or returns [records.ErrStale].
	Write(ctx context.Context, read records.Stored, next record.Record) (records.Stored, error)
}

// Observer receives the results, for logs, metrics and events.
type Observer interface {
	// Applied receives a transaction that has had its effect, and the decision that it rested on.
	// After a restore node is the resulting Node; otherwise it is nil.
	Applied(ctx context.Context, t txn.Transaction, d preserve.Decision, node *nodeview.Node)
	// Withheld receives the labels of a machine that a transaction's Node does not get. It is called
	// once by the restore, and once when labels stop waiting.
	Withheld(ctx context.Context, t txn.Transaction, held preserve.Held)
	// Renewed receives the transaction whose record was of an earlier history, see [preserve.Ahead].
	Renewed(ctx context.Context, t txn.Transaction)
	// Refused receives a label that the Node does not get because the API server refused it, with the
	// error.
	Refused(ctx context.Context, t txn.Transaction, keys labels.Keys, err error)
	// NotGivenBack receives the error of labels that stay nodekeeper's, see [Nodes.GiveBack].
	NotGivenBack(ctx context.Context, t txn.Transaction, err error)
	// Conflicted receives the error of a write whose object had changed: [nodes.ErrStale] or
	// [records.ErrStale].
	Conflicted(err error)
	// TooLarge receives a transaction that is dropped because its labels do not fit in a record.
	TooLarge(ctx context.Context, t txn.Transaction, err error)
}

// RefusedError means that the API server or an admission plugin refused a restore.
type RefusedError struct {
	Node string
	UID  types.UID
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("restoring the labels of node %q: %v", e.Node, e.Err)
}
func (e *RefusedError) Unwrap() error { return e.Err }

// UnreadableError means that the record of a node cannot be read. The node's transactions wait
// until a user corrects or deletes the record.
type UnreadableError struct {
	Object *corev1.ConfigMap
	Err    error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("reading the record of node %q: %v", e.Object.Name, e.Err)
}
func (e *UnreadableError) Unwrap() error { return e.Err }

// Applier applies transactions. It is safe for concurrent use.
type Applier struct {
	Nodes    Nodes
	Records  Records
	Policy   labels.Policy
	Observer Observer
	// Plan replaces [preserve.PlanAt] in tests that break a rule on purpose. Nil means preserve.PlanAt.
	Plan func(now revision.Revision, queue []txn.Transaction, r *record.Record, n *nodeview.Node) []preserve.Step

	latest latest
}

// view is what a plan rests on. The zero value means that nothing has been read.
type view struct {
	stored records.Stored
	// node is nil if there is no Node, or if it was not read.
	node *nodeview.Node
	// readAt is when the read of the Node began, or the zero time if it was not read.
	readAt time.Time
	// current reports whether the record was found to be current after the Node was read: by a live
	// read, or by a successful write.
	current bool
	// gaveBack reports whether the labels of the Node were given back, or that was tried.
	gaveBack bool
}

// Apply carries out the transactions of a node in order. It returns how many of them, from the
// start of the queue, have had their effect; these can be removed from the queue even if Apply
// returns an error.
//
// Before a plan is executed, and after all reads, confirm is called with the transactions whose
// labels the plan saves; its error ends the attempt. Other transactions need no confirmation beyond
// the live Node: a restore uses only the UID of a transaction, which must be that of the Node.
func (a *Applier) Apply(ctx context.Context, queue []txn.Transaction, confirm func(context.Context, []txn.Transaction) error) (settled int, err error) {
	r := run{queue: queue}
	for isFirst := true; r.settled < len(queue) && err == nil; isFirst = false {
		err = a.round(ctx, &r, isFirst, confirm)
	}
	return r.settled, err
}

// run is one call of Apply.
type run struct {
	view

	queue     []txn.Transaction
	settled   int // transactions that have had their effect
	alone     int // transactions before this index are planned one by one
	conflicts int // consecutive
	idle      int // consecutive plans that settled no transaction
}

// round executes a plan for the transactions that are left up to its first write of the Node. Only
// the first one may rest on the cache.
func (a *Applier) round(ctx context.Context, r *run, isFirst bool, confirm func(context.Context, []txn.Transaction) error) error {
	rest := r.queue[r.settled:]
	if r.settled < r.alone {
		rest = rest[:1]
	}
	steps, err := a.plan(ctx, rest, &r.view, isFirst)
	if err != nil {
		return err
	}
	if err := confirm(ctx, saved(rest, steps)); err != nil {
		return err
	}
	before := r.settled
	err = a.execute(ctx, steps, r)
	if r.settled > before {
		r.conflicts, r.idle = 0, 0
	} else if r.idle++; err == nil && r.idle == maxIdle {
		return fmt.Errorf("applying the transactions of node %q: %d plans in a row settled nothing", r.queue[0].Node, r.idle)
	}
	return a.afterError(ctx, r, len(rest), err)
}

// afterError prepares another round after the error, if any, of a round with the given number of
// transactions, or returns the error if there must be none.
func (a *Applier) afterError(ctx context.Context, r *run, planned int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, records.ErrTooLarge) && planned > 1:
		// One of the transactions cannot be stored. The transactions that its save would supersede must
		// be.
		r.view, r.alone = view{}, len(r.queue)
		return nil
	case errors.Is(err, records.ErrTooLarge) && !r.current:
		r.view = view{} // no transaction is dropped because of a cached read
		return nil
	case errors.Is(err, records.ErrTooLarge):
		// Drop the transaction, so that it does not block the others. The record stays as it is.
		a.Observer.TooLarge(ctx, r.queue[r.settled], err)
		r.view = view{}
		r.settled++
		return nil
	case !errors.Is(err, nodes.ErrStale) && !errors.Is(err, records.ErrStale):
		return err
	}
	a.Observer.Conflicted(err)
	if r.conflicts++; r.conflicts == maxConflicts {
		return fmt.Errorf("applying the transactions of node %q: %d conflicts in a row", r.queue[0].Node, r.conflicts)
	}
	r.view = view{}
	return nil
}

// saved returns the transactions that a plan saves before its first restore, including superseded
// ones.
func saved(queue []txn.Transaction, steps []preserve.Step) []txn.Transaction {
	var all []txn.Transaction
	at := 0
	for _, step := range steps {
		if step.WritesNode() {
			break
		}
		for _, d := range step.Decisions {
			// A save with a further effect is followed by another decision on the same transaction.
			if d.Action == preserve.Save && (len(all) == 0 || txn.Compare(all[len(all)-1], queue[at]) != 0) {
				all = append(all, queue[at])
			}
			if !d.Again {
				at++
			}
		}
	}
	return all
}

// plan reads what is still missing and returns a plan that can be executed. It reads the Node
// before the record, or before the save that proves the cached record to be current. A restore by
// another process is therefore either visible in the record or makes the write to the Node fail.
func (a *Applier) plan(ctx context.Context, queue []txn.Transaction, v *view, fromCache bool) ([]preserve.Step, error) {
	if v.current && v.readAt.IsZero() && preserve.NeedsNode(queue, v.stored.Record, a.Policy.MachineBound) {
		*v = view{} // so far the Node was not needed
	}
	if fromCache {
		steps, err := a.planFromCache(ctx, queue, v)
		if err != nil || len(steps) > 0 {
			return steps, err
		}
	}
	if !v.current {
		if err := a.readLive(ctx, queue[0].Node, v); err != nil {
			return nil, err
		}
	}
	return a.planned(ctx, queue, v)
}

// planFromCache returns a plan that begins with a save, whose precondition proves the cached record
// to be current. It returns no other plan: the write of a restore is conditional on the Node only,
// and no transaction may be dropped because of a cached read.
func (a *Applier) planFromCache(ctx context.Context, queue []txn.Transaction, v *view) ([]preserve.Step, error) {
	stored, err := a.Records.Cached(ctx, queue[0].Node)
	if err != nil || stored.Unreadable != nil {
		return nil, nil //nolint:nilerr // a live read follows, which returns the error if it persists
	}
	if preserve.NeedsNode(queue, stored.Record, a.Policy.MachineBound) {
		if err := a.readNode(ctx, queue[0].Node, v); err != nil {
			return nil, err
		}
	}
	v.stored = stored
	steps, err := a.planned(ctx, queue, v)
	if err != nil || steps[0].Action != preserve.Save {
		return nil, err
	}
	return steps, nil
}

// readLive reads the Node, unless that was done just before, and then its record.
func (a *Applier) readLive(ctx context.Context, node string, v *view) (err error) {
	if v.readAt.IsZero() {
		if err := a.readNode(ctx, node, v); err != nil {
			return err
		}
	}
	if v.stored, err = a.Records.Get(ctx, node); err != nil {
		return err
	}
	if v.stored.Unreadable != nil {
		return &UnreadableError{Object: v.stored.Object, Err: v.stored.Unreadable}
	}
	v.current = true
	return nil
}

func (a *Applier) readNode(ctx context.Context, node string, v *view) error {
	began := time.Now()
	n, err := a.Nodes.Get(ctx, node)
	if err == nil {
		v.node, v.readAt = n, began
	}
	return err
}

func (a *Applier) planned(ctx context.Context, queue []txn.Transaction, v *view) ([]preserve.Step, error) {
	now, err := a.present(ctx, queue, v)
	if err != nil {
		return nil, err
	}
	if a.Plan != nil {
		return a.Plan(now, queue, v.stored.Record, v.node), nil
	}
	return preserve.PlanAt(now, queue, v.stored.Record, v.node, a.Policy), nil
}

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
		// The webhook or an interrupted attempt may have set the labels.
		if err := a.giveBack(ctx, r.queue[r.settled], &r.view); err != nil {
			return err
		}
		a.report(ctx, r, step)
	}
	return nil
}

// report passes the transactions of a step without a restore to the observer. All saves of a step
// are one write: only the one that changed the labels, if any, is reported as a save.
func (a *Applier) report(ctx context.Context, r *run, step preserve.Step) {
	reported := -1
	for i, d := range step.Decisions {
		if d.Action == preserve.Save && !d.Again && (reported < 0 || !d.IsNote() || step.Decisions[reported].IsNote()) {
			reported = i
		}
	}
	for i, d := range step.Decisions {
		t := r.queue[r.settled]
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
		r.settled++
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
	if nodes.Refused(err) {
		return &RefusedError{Node: t.Node, UID: t.UID, Err: err}
	}
	if err != nil {
		return err
	}
	a.Observer.Applied(ctx, t, step.Decision, node)
	v.node, v.readAt, v.gaveBack = node, began, false
	return nil
}
