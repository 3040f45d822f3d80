// Package apply makes the effect of transactions stored: it reads the Node and its record once,
// plans, and executes the plan by conditional writes. It starts over with live reads when a write
// finds that something has changed.
//
// It is the only writer of restores. Any number of processes may apply the same transactions
// at once: the writes carry preconditions, and a transaction that has had its effect has no other.
package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// maxConflicts bounds immediate retries after conflicts. More in a row mean that something else
// writes all the time: then the node backs off.
const maxConflicts = 10

// maxIdle bounds immediate plans that settle nothing. Withheld labels take two.
const maxIdle = 2 * maxConflicts

// Nodes are the live Nodes.
type Nodes interface {
	// Get returns the metadata of a Node, nil if there is none. GetIdentified does, too, and which
	// machine it is, see [identity.Noted].
	Get(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error)
	GetIdentified(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error)
	// Relabel gives a Node exactly these labels, conditional on the Node that was read. It returns
	// the Node that came of it, with the identity that was read, or [nodes.ErrStale].
	Relabel(ctx context.Context, read *metav1.PartialObjectMetadata, wanted map[string]string) (*metav1.PartialObjectMetadata, error)
}

// Records are the records of nodes.
type Records interface {
	// Cached returns a record from a cache, which may be behind; Get does by a live read. Zero:
	// there is none.
	Cached(ctx context.Context, node string) (records.Stored, error)
	Get(ctx context.Context, node string) (records.Stored, error)
	// Write stores a record, conditional on the one that was read, or returns [records.ErrStale].
	Write(ctx context.Context, read records.Stored, next record.Record) (records.Stored, error)
}

// Observer receives what was done, for logs, metrics and events.
type Observer interface {
	// Applied receives a transaction that has had its effect by this decision. Node is the Node as
	// a restore left it, else nil.
	Applied(ctx context.Context, t txn.Transaction, d preserve.Decision, node *metav1.PartialObjectMetadata)
	// Withheld receives restricted labels that a transaction's Node does not get. A restore tells
	// that once, and so does the end of a wait.
	Withheld(ctx context.Context, t txn.Transaction, held preserve.Held)
	// Conflicted receives the error of a write whose object had changed: [nodes.ErrStale] or
	// [records.ErrStale].
	Conflicted(err error)
	// TooLarge receives a transaction that is dropped because its labels do not fit a record.
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

// UnreadableError means that the record of a node cannot be read: its transactions wait until
// somebody corrects or deletes it.
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
	// Plan replaces [preserve.Plan] in tests that break a rule on purpose. Nil means preserve.Plan.
	Plan func(queue []txn.Transaction, r *record.Record, n *preserve.Node) []preserve.Step
}

// known is the input of a plan. Zero: nothing was read.
type known struct {
	stored records.Stored
	node   *metav1.PartialObjectMetadata
	// nodeRead reports whether the Node was read; if there is none, node is nil all the same.
	nodeRead bool
	// identified reports whether it was read which machine the Node is.
	identified bool
	// current reports whether the record was live after the Node was read, by a read or by a write
	// that succeeded.
	current bool
}

// Apply makes the effect of the transactions of a node stored, in their order. It returns how many
// have had their effect, counted from the first; these can be removed from the queue, whatever the
// error. Confirm is called before a plan is executed, after all reads, with the transactions that
// the plan saves the labels of: an error ends the attempt. The others need no other proof than the
// live Node: a restore takes nothing from a transaction but the uid, which is that of the Node.
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
	settled   int // how many transactions have had their effect
	alone     int // the transactions before this one are planned one by one
	fromCache bool
	conflicts int // in a row
	idle      int // plans in a row that settled nothing
}

// afterError prepares another attempt after an error of one that planned some transactions, or
// returns the error.
func (a *Applier) afterError(ctx context.Context, r *run, planned int, err error) error {
	switch {
	case errors.Is(err, records.ErrTooLarge) && planned > 1:
		// One of the transactions can never be stored, and those that its save supersedes must be.
		r.known, r.alone, r.fromCache = known{}, len(r.queue), false
		return nil
	case errors.Is(err, records.ErrTooLarge) && !r.current:
		r.known, r.fromCache = known{}, false // nothing is dropped on a cached read
		return nil
	case errors.Is(err, records.ErrTooLarge):
		// It must not hold up the rest. What is saved of this node stays as it is.
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

// saved returns the transactions that a plan saves up to its first restore, superseded ones too.
func saved(queue []txn.Transaction, steps []preserve.Step) []txn.Transaction {
	var all []txn.Transaction
	at := 0
	for _, step := range steps {
		if step.WritesNode() {
			break
		}
		for _, d := range step.Decisions {
			// After a save that is not all of its effect, the transaction comes once more.
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

// plan reads what is not known yet and returns a plan that can be executed. The Node is read before
// its record, or before the save that shows the cached record to be the current one: so a restore
// by another process either shows in the record or makes the write to the Node fail.
func (a *Applier) plan(ctx context.Context, queue []txn.Transaction, k *known, fromCache bool) ([]preserve.Step, error) {
	if k.current && (!k.nodeRead && preserve.NeedsNode(queue, k.stored.Record) || !k.identified && preserve.NeedsIdentity(queue, k.stored.Record)) {
		*k = known{} // the transactions before these needed only the record, or not which machine the Node is
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
	return a.planned(queue, k), nil
}

// planFromCache returns a plan that begins with a save, whose precondition shows whether the cached
// record is the current one; no other plan may be executed: the write of a restore is conditional
// on the Node only, and nothing is ever dropped on a cached read.
func (a *Applier) planFromCache(ctx context.Context, queue []txn.Transaction, k *known) ([]preserve.Step, error) {
	stored, err := a.Records.Cached(ctx, queue[0].Node)
	if err != nil || stored.Unreadable != nil {
		return nil, nil //nolint:nilerr // a live read follows, which returns the error if it persists
	}
	if preserve.NeedsNode(queue, stored.Record) {
		if err := a.readNode(ctx, queue, k, preserve.NeedsIdentity(queue, stored.Record)); err != nil {
			return nil, err
		}
	}
	k.stored = stored
	if steps := a.planned(queue, k); steps[0].Action == preserve.Save {
		return steps, nil
	}
	return nil, nil
}

// readLive reads the record, and before it the Node if a plan may need it. If the record shows that
// it matters which machine the Node is, both are read once more.
func (a *Applier) readLive(ctx context.Context, queue []txn.Transaction, k *known) (err error) {
	hasAdded := slices.ContainsFunc(queue, func(t txn.Transaction) bool { return t.Type == txn.Added })
	for identified := k.identified || preserve.NeedsIdentity(queue, k.stored.Record); ; identified = true {
		if hasAdded && !k.nodeRead || identified && !k.identified {
			if err := a.readNode(ctx, queue, k, identified); err != nil {
				return err
			}
		}
		if k.stored, err = a.Records.Get(ctx, queue[0].Node); err != nil {
			return err
		}
		if k.stored.Unreadable != nil {
			return &UnreadableError{Object: k.stored.Object, Err: k.stored.Unreadable}
		}
		if k.identified || !preserve.NeedsIdentity(queue, k.stored.Record) {
			k.current = true
			return nil
		}
	}
}

func (a *Applier) readNode(ctx context.Context, queue []txn.Transaction, k *known, identified bool) (err error) {
	// One that came with the startup taint may have lost the marker since, which says so.
	identified = identified || slices.ContainsFunc(queue, preserve.ComesGated)
	get := a.Nodes.Get
	if identified {
		get = a.Nodes.GetIdentified
	}
	k.node, err = get(ctx, queue[0].Node)
	if err == nil && !identified && k.node != nil {
		// What somebody has trusted since may be saved by a note of a restore, with which machine
		// it is. The startup taint can be removed only from the list of all taints.
		if n := preserve.NodeOf(k.node); n.Gated || preserve.HasRestricted(n.Labels, n.Machine) {
			identified = true
			k.node, err = a.Nodes.GetIdentified(ctx, queue[0].Node)
		}
	}
	k.nodeRead, k.identified = err == nil, err == nil && identified
	return err
}

func (a *Applier) planned(queue []txn.Transaction, k *known) []preserve.Step {
	var node *preserve.Node
	if k.node != nil {
		node = preserve.NodeOf(k.node)
	}
	if a.Plan != nil {
		return a.Plan(queue, k.stored.Record, node)
	}
	return preserve.Plan(queue, k.stored.Record, node, a.Policy)
}

// execute executes a plan up to its first write of the Node, whose answer the next plan needs.
func (a *Applier) execute(ctx context.Context, steps []preserve.Step, r *run) (err error) {
	for _, step := range steps {
		switch step.Action {
		case preserve.Nothing:
			err = a.keepAlive(ctx, &r.known)
		case preserve.Save:
			err = a.save(ctx, step.Record, &r.known)
		case preserve.Restore:
			err = a.restore(ctx, r.queue[r.settled], step, &r.known)
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
		a.tell(ctx, r, step)
	}
	return nil
}

// tell passes the transactions of a step without a restore to the observer. Of the saves, which are
// one write, it passes on the one that has changed the labels, if any has.
func (a *Applier) tell(ctx context.Context, r *run, step preserve.Step) {
	told := -1
	for i, d := range step.Decisions {
		if d.Action == preserve.Save && !d.Again && (told < 0 || !d.IsNote() || step.Decisions[told].IsNote()) {
			told = i
		}
	}
	for i, d := range step.Decisions {
		t := r.queue[r.settled]
		for _, held := range d.Held {
			a.Observer.Withheld(ctx, t, held)
		}
		if d.Again {
			continue
		}
		if d.Action == preserve.Save && i != told {
			d = preserve.Decision{Reason: preserve.Superseded}
		}
		a.Observer.Applied(ctx, t, d, nil)
		r.settled++
	}
}

// keepAlive writes a record with the annotation away-since again, which removes that: any event of
// the node is a sign of life.
func (a *Applier) keepAlive(ctx context.Context, k *known) error {
	if k.stored.Object == nil || k.stored.Object.Annotations[record.AwaySinceAnnotation] == "" {
		return nil
	}
	return a.save(ctx, *k.stored.Record, k)
}

// save replaces the known record. Success shows that it was the current one.
func (a *Applier) save(ctx context.Context, next record.Record, k *known) error {
	stored, err := a.Records.Write(ctx, k.stored, next)
	if err != nil {
		return err
	}
	k.stored, k.current = stored, true
	return nil
}

// restore puts labels and marker onto the Node in one write, then notes that in the record. After a
// crash between the two the next attempt finds the marker.
func (a *Applier) restore(ctx context.Context, t txn.Transaction, step preserve.Step, k *known) error {
	wanted := maps.Clone(step.Labels)
	wanted[labels.Marker] = step.Marker
	read := k.node
	if err := a.relabel(ctx, t, step, wanted, k); err != nil {
		return err
	}
	for _, held := range step.Held {
		a.Observer.Withheld(ctx, t, held)
	}
	// The answer, and not the request: admission plugins may add and remove labels.
	return a.save(ctx, preserve.Noted(*k.stored.Record, *preserve.NodeOf(read), *preserve.NodeOf(k.node)), k)
}

// open removes the startup taint and the marker from a Node whose labels stay as they are.
func (a *Applier) open(ctx context.Context, t txn.Transaction, step preserve.Step, k *known) error {
	own, _ := labels.Split(k.node.Labels)
	return a.relabel(ctx, t, step, own, k)
}

// relabel replaces the labels of the known Node, and with them the startup taint if it has that.
func (a *Applier) relabel(ctx context.Context, t txn.Transaction, step preserve.Step, wanted map[string]string, k *known) error {
	node, err := a.Nodes.Relabel(ctx, k.node, wanted)
	if nodes.Refused(err) {
		return &RefusedError{Node: t.Node, UID: t.UID, Err: err}
	}
	if err != nil {
		return err
	}
	a.Observer.Applied(ctx, t, step.Decision, node)
	k.node = node
	return nil
}
