package byhand

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/txn"
)

// ErrChanged is returned if a record was written after it was read.
var ErrChanged = errors.New("the record has changed since it was read: run this again")

// Edit changes the saved labels of a node that is away.
type Edit struct {
	Cluster *inspect.Cluster
	Labels  LabelEdit
	// Overwrite allows new values for existing labels.
	Overwrite bool
	// IgnoreMissingEnd edits a record without the end of its incarnation: see awaitEnd.
	IgnoreMissingEnd bool
	DryRun           DryRun
	Timeout          time.Duration
	Progress         Progress
}

// Apply edits the record of a node and returns the record before and after. It first waits until
// the pending transactions of the node are applied, as these may change labels in the record. It
// does not write an edit that changes nothing: see [Changes].
func (e *Edit) Apply(ctx context.Context, name string) (before, after record.Record, err error) {
	n, err := e.settled(ctx, name)
	if err == nil && !e.IgnoreMissingEnd && !e.DryRun.Dry() && endMissing(n) {
		if _, err = awaitEnd(ctx, e.Cluster, n, e.Timeout, e.Progress); err == nil {
			n, err = e.settled(ctx, name)
		}
	}
	if err != nil {
		return record.Record{}, record.Record{}, err
	}
	before = *n.Saved.Record
	after, err = e.edited(n)
	if err != nil || !e.Changes(before, after) || e.DryRun == DryRunClient {
		return before, after, err
	}
	door := &records.Records{Client: e.DryRun.Writer(e.Cluster.Client), Namespace: e.Cluster.MetadataNamespace}
	_, err = door.Write(ctx, n.Saved.Stored(), after)
	if errors.Is(err, records.ErrStale) {
		err = ErrChanged
	}
	return before, after, err
}

// Changes reports whether an edit changes the labels of a record or their owners.
func (e *Edit) Changes(before, after record.Record) bool {
	return !preserve.Equivalent(before, after, e.Cluster.View(before.Node).MachineBound)
}

// settled waits until no transactions of a node are pending, and returns the node, which must be
// away and have a record.
func (e *Edit) settled(ctx context.Context, name string) (n *inspect.Node, err error) {
	settled, err := poll(ctx, e.Timeout, func() (bool, error) {
		n, err = e.Cluster.Node(ctx, name)
		switch {
		case err != nil:
			return false, err
		case !n.Found():
			return false, fmt.Errorf("node %q not found, and no labels are saved for it: see kubectl nodekeeper list", name)
		case n.Live != nil:
			return false, fmt.Errorf("node %q exists: change its labels with kubectl label node %s", name, name)
		case n.Saved.Unreadable != nil:
			return false, fmt.Errorf("the record of node %q: %w: %s", name, n.Saved.Unreadable, n.Saved.Advice())
		}
		e.Progress("Waiting for the processors: %s of node %s left", amount.Of(len(n.Pending), "transaction"), name)
		return len(n.Pending) == 0, e.expedite(ctx, n)
	})
	switch {
	case err != nil:
		return nil, err
	case !settled:
		return nil, fmt.Errorf("node %q still has %s after %s: kubectl nodekeeper show %s shows the reason", name, amount.Of(len(n.Pending), "pending transaction"), e.Timeout, name)
	case n.Saved.Record == nil:
		return nil, fmt.Errorf("no labels are saved for node %q: only saved labels can be changed", name)
	}
	return n, nil
}

// expedite marks the pending transactions of a node as urgent.
func (e *Edit) expedite(ctx context.Context, n *inspect.Node) error {
	if e.DryRun.Dry() {
		return nil
	}
	for _, t := range n.Pending {
		if err := e.Cluster.Queue().Expedite(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// edited returns the record with the changes. Its revision is that of the read which found the node
// away.
func (e *Edit) edited(n *inspect.Node) (record.Record, error) {
	if cameBack(n) {
		return record.Record{}, ErrChanged
	}
	for key := range e.Labels.set {
		if e.Cluster.View(n.Name).Ignored.Match(key) {
			return record.Record{}, fmt.Errorf("label %q is ignored, see --ignore-labels: it would not be restored", key)
		}
	}
	if _, err := e.Labels.Of(n.Saved.Record.All(), e.Overwrite); err != nil {
		return record.Record{}, err // also for a withheld label
	}
	after, err := e.Labels.Of(n.Saved.Record.Labels, e.Overwrite)
	if err != nil {
		return record.Record{}, err
	}
	edited := preserve.UserRecordAfter(*n.Saved.Record, after, e.Labels.keys(), n.Now, e.Cluster.View(n.Name).MachineBound)
	if _, without := record.Bounded(edited.Withheld); without != "" {
		return record.Record{}, errors.New("too many labels of a machine for one record: name some of them as KEY=VALUE, which gives them to the name, or remove some")
	}
	if size := txn.DataBytes(edited.ConfigMap("").Data); size > txn.MaxDataBytes {
		return record.Record{}, fmt.Errorf("the labels would have %d bytes: a record has room for %d", size, txn.MaxDataBytes)
	}
	// The edited record needs a later revision: otherwise a restore in progress would count as a
	// restore of the edited labels.
	if !n.Now.After(n.Saved.Record.Revision) {
		return record.Record{}, fmt.Errorf("the record of node %q is of version %s, and the nodes of this cluster are at %s only: run this again in a moment; "+
			"if the record is of another cluster, kubectl nodekeeper export and import it", n.Name, n.Saved.Record.Revision, n.Now)
	}
	return edited, nil
}
