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

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
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
	GiveBack(ctx context.Context, read *nodeview.Node, to fieldmanagers.Owners) error
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
// labels the plan saves, and the one that it restores if that rests on other states in the queue; its
// error ends the attempt. Other transactions need no confirmation beyond the live Node: of them, a restore
// uses only the UID, which must be that of the Node.
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
	if err := confirm(ctx, used(rest, steps)); err != nil {
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

// used returns the transactions that a plan saves before its first restore, including superseded
// ones, and that which it restores then if users have edited its Node as the queue shows.
func used(queue []txn.Transaction, steps []preserve.Step) []txn.Transaction {
	var all []txn.Transaction
	at := 0
	for _, step := range steps {
		if step.WritesNode() {
			if queue[at].RestsOnQueue() {
				all = append(all, queue[at])
			}
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
