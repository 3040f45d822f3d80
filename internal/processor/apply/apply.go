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
	"slices"
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
	// Get returns a Node, or nil if it does not exist. GetIdentified also returns its taints and the
	// identity of its machine.
	Get(ctx context.Context, name string) (*nodeview.Node, error)
	GetIdentified(ctx context.Context, name string) (*nodeview.Node, error)
	// Now returns the current revision of all Nodes.
	Now(ctx context.Context) (revision.Revision, error)
	// Relabel replaces the labels of a Node, conditional on the Node that was read: all of it, or if
	// that read began only just before, what is replaced and the marker. It returns the resulting
	// Node, with the identity that was read, or [nodes.ErrStale].
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

// known is the input of a plan. The zero value means that nothing has been read.
type known struct {
	stored records.Stored
	node   *nodeview.Node
	// readAt is when the read of the Node began.
	readAt time.Time
	// nodeRead reports whether the Node was read. The node is nil if it was not, or if there is none.
	nodeRead bool
	// identified reports whether the identity of the machine was read, too.
	identified bool
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
	r := run{queue: queue, fromCache: true}
	for r.settled < len(queue) {
		rest := queue[r.settled:]
		if r.settled < r.alone {
			rest = rest[:1]
		}
		steps, err := a.plan(ctx, rest, &r.known, r.fromCache)
		if err != nil {
			return r.settled, err
		}
		if err := confirm(ctx, saved(rest, steps)); err != nil {
			return r.settled, err
		}
		before := r.settled
		err = a.execute(ctx, steps, &r)
		if r.settled > before {
			r.conflicts, r.idle = 0, 0
		} else if r.idle++; err == nil && r.idle == maxIdle {
			err = fmt.Errorf("applying the transactions of node %q: %d plans in a row settled nothing", queue[0].Node, r.idle)
		}
		if err != nil {
			err = a.afterError(ctx, &r, len(rest), err)
		}
		if err != nil {
			return r.settled, err
		}
	}
	return r.settled, nil
}

// run is one call of Apply.
type run struct {
	known

	queue     []txn.Transaction
	settled   int // transactions that have had their effect
	alone     int // transactions before this index are planned one by one
	fromCache bool
	conflicts int // consecutive
	idle      int // consecutive plans that settled no transaction
}

// afterError prepares another attempt after an attempt with the given number of transactions
// failed, or returns the error if there must be none.
func (a *Applier) afterError(ctx context.Context, r *run, planned int, err error) error {
	switch {
	case errors.Is(err, records.ErrTooLarge) && planned > 1:
		// One of the transactions cannot be stored. The transactions that its save would supersede must
		// be.
		r.known, r.alone, r.fromCache = known{}, len(r.queue), false
		return nil
	case errors.Is(err, records.ErrTooLarge) && !r.current:
		r.known, r.fromCache = known{}, false // no transaction is dropped because of a cached read
		return nil
	case errors.Is(err, records.ErrTooLarge):
		// Drop the transaction, so that it does not block the others. The record stays as it is.
		a.Observer.TooLarge(ctx, r.queue[r.settled], err)
		r.known = known{}
		r.settled++
		return nil
	case !errors.Is(err, nodes.ErrStale) && !errors.Is(err, records.ErrStale):
		return err
	}
	a.Observer.Conflicted(err)
	if r.conflicts++; r.conflicts == maxConflicts {
		return fmt.Errorf("applying the transactions of node %q: %d conflicts in a row", r.queue[0].Node, r.conflicts)
	}
	r.known, r.fromCache = known{}, false
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
func (a *Applier) plan(ctx context.Context, queue []txn.Transaction, k *known, fromCache bool) ([]preserve.Step, error) {
	if k.current && (!k.nodeRead && preserve.NeedsNode(queue, k.stored.Record, a.Policy.MachineBound) || !k.identified && preserve.NeedsIdentity(queue, k.stored.Record, a.Policy.MachineBound)) {
		*k = known{} // so far neither the Node, or not its identity, was needed
	}
	if !k.current && fromCache {
		steps, err := a.planFromCache(ctx, queue, k)
		if err != nil || len(steps) > 0 {
			return steps, err
		}
	}
	if !k.current {
		if err := a.readLive(ctx, queue, k); err != nil {
			return nil, err
		}
	}
	return a.planned(ctx, queue, k)
}

// planFromCache returns a plan that begins with a save, whose precondition proves the cached record
// to be current. It returns no other plan: the write of a restore is conditional on the Node only,
// and no transaction may be dropped because of a cached read.
func (a *Applier) planFromCache(ctx context.Context, queue []txn.Transaction, k *known) ([]preserve.Step, error) {
	stored, err := a.Records.Cached(ctx, queue[0].Node)
	if err != nil || stored.Unreadable != nil {
		return nil, nil //nolint:nilerr // a live read follows, which returns the error if it persists
	}
	if preserve.NeedsNode(queue, stored.Record, a.Policy.MachineBound) {
		if err := a.readNode(ctx, queue, k, preserve.NeedsIdentity(queue, stored.Record, a.Policy.MachineBound)); err != nil {
			return nil, err
		}
	}
	k.stored = stored
	steps, err := a.planned(ctx, queue, k)
	if err != nil || steps[0].Action != preserve.Save {
		return nil, err
	}
	return steps, nil
}

// readLive reads the record, and before it the Node if a plan may need it. If the record shows that
// the Node or the identity of its machine matters, readLive reads both again.
func (a *Applier) readLive(ctx context.Context, queue []txn.Transaction, k *known) (err error) {
	needsNode := slices.ContainsFunc(queue, func(t txn.Transaction) bool { return t.Type == txn.Added })
	needsIdentity := k.identified || preserve.NeedsIdentity(queue, k.stored.Record, a.Policy.MachineBound)
	for {
		if needsNode && !k.nodeRead || needsIdentity && !k.identified {
			if err := a.readNode(ctx, queue, k, needsIdentity); err != nil {
				return err
			}
		}
		if k.stored, err = a.Records.Get(ctx, queue[0].Node); err != nil {
			return err
		}
		if k.stored.Unreadable != nil {
			return &UnreadableError{Object: k.stored.Object, Err: k.stored.Unreadable}
		}
		needsNode, needsIdentity = preserve.NeedsNode(queue, k.stored.Record, a.Policy.MachineBound), preserve.NeedsIdentity(queue, k.stored.Record, a.Policy.MachineBound)
		if (k.nodeRead || !needsNode) && (k.identified || !needsIdentity) {
			k.current = true
			return nil
		}
	}
}

func (a *Applier) readNode(ctx context.Context, queue []txn.Transaction, k *known, identified bool) (err error) {
	// A Node that was created with the startup taint may have lost the marker since that shows this.
	identified = identified || slices.ContainsFunc(queue, preserve.ComesGated)
	get := a.Nodes.Get
	if identified {
		get = a.Nodes.GetIdentified
	}
	k.readAt = time.Now()
	k.node, err = get(ctx, queue[0].Node)
	if err == nil && !identified && k.node != nil {
		// The note of a restore may save a label that a user has trusted since, together with the
		// identity. And the startup taint can be removed only from the complete list of taints.
		if n := k.node; n.Gated || preserve.HasBound(n.Labels, n.Machine, a.Policy.MachineBound) {
			identified = true
			k.node, err = a.Nodes.GetIdentified(ctx, queue[0].Node)
		}
	}
	k.nodeRead, k.identified = err == nil, err == nil && identified
	return err
}

func (a *Applier) planned(ctx context.Context, queue []txn.Transaction, k *known) ([]preserve.Step, error) {
	now, err := a.present(ctx, queue, k)
	if err != nil {
		return nil, err
	}
	if a.Plan != nil {
		return a.Plan(now, queue, k.stored.Record, k.node), nil
	}
	return preserve.PlanAt(now, queue, k.stored.Record, k.node, a.Policy), nil
}

// execute executes a plan up to its first write of the Node. The next plan needs the answer to that
// write.
func (a *Applier) execute(ctx context.Context, steps []preserve.Step, r *run) (err error) {
	for _, step := range steps {
		switch step.Action {
		case preserve.Nothing:
			err = a.keepAlive(ctx, &r.known)
		case preserve.Save:
			err = a.save(ctx, step.Record, &r.known)
		case preserve.Restore:
			var isSetAside bool
			if isSetAside, err = a.restore(ctx, r.queue[r.settled], step, &r.known); isSetAside {
				return err // another plan follows, without the label
			}
		case preserve.Open:
			err = a.open(ctx, r.queue[r.settled], step, &r.known)
		}
		if err != nil {
			return err
		}
		if step.WritesNode() {
			r.settled += step.Settles()
			return nil
		}
		// The webhook or an interrupted attempt may have set the labels.
		if err := a.giveBack(ctx, r.queue[r.settled], &r.known); err != nil {
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
func (a *Applier) keepAlive(ctx context.Context, k *known) error {
	if k.stored.Object == nil || k.stored.Object.Annotations[record.AwaySinceAnnotation] == "" {
		return nil
	}
	return a.save(ctx, *k.stored.Record, k)
}

// save replaces the known record. Success proves that it was current.
func (a *Applier) save(ctx context.Context, next record.Record, k *known) error {
	stored, err := a.Records.Write(ctx, k.stored, next)
	if err != nil {
		return err
	}
	k.stored, k.current = stored, true
	return nil
}

// restore sets the labels and the marker of the Node in one write, notes the restore in the record,
// then gives the labels back to their owners. After a crash in between the next attempt finds the
// marker, or the note. If a label is refused, it is set aside instead.
func (a *Applier) restore(ctx context.Context, t txn.Transaction, step preserve.Step, k *known) (isSetAside bool, err error) {
	wanted := nodes.Wanted{Labels: step.Labels, Marker: step.Marker}
	read := k.node
	if err := a.relabel(ctx, t, step, wanted, k); err != nil {
		if refusal := asRefused(err); refusal != nil {
			return true, a.setAside(ctx, t, wanted, k, refusal)
		}
		return false, err
	}
	for _, held := range step.Held {
		a.Observer.Withheld(ctx, t, held)
	}
	// Note the answer, not the request: admission plugins may add and remove labels.
	if err := a.save(ctx, preserve.Noted(*k.stored.Record, *read, *k.node, a.Policy.MachineBound), k); err != nil {
		return false, err
	}
	return false, a.giveBack(ctx, t, k)
}

// open removes the startup taint and the marker from a Node, and keeps its labels.
func (a *Applier) open(ctx context.Context, t txn.Transaction, step preserve.Step, k *known) error {
	return a.relabel(ctx, t, step, nodes.Wanted{Labels: k.node.Labels}, k)
}

// relabel replaces the labels of the known Node, and removes its startup taint if it has one.
func (a *Applier) relabel(ctx context.Context, t txn.Transaction, step preserve.Step, wanted nodes.Wanted, k *known) error {
	began := time.Now()
	node, err := a.Nodes.Relabel(ctx, k.node, wanted, k.readAt)
	if nodes.Refused(err) {
		return &RefusedError{Node: t.Node, UID: t.UID, Err: err}
	}
	if err != nil {
		return err
	}
	a.Observer.Applied(ctx, t, step.Decision, node)
	k.node, k.readAt, k.gaveBack = node, began, false
	return nil
}
