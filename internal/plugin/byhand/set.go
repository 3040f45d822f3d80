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

// ErrChanged says that a record was written since it was read.
var ErrChanged = errors.New("the record has changed since it was read: run this again")

// Edit changes the saved labels of a node that is away.
type Edit struct {
	Cluster *inspect.Cluster
	Labels  LabelEdit
	// Overwrite allows other values for labels that are there.
	Overwrite bool
	// IgnoreMissingEnd edits a record that does not have the end of its incarnation: see awaitEnd.
	IgnoreMissingEnd bool
	DryRun           DryRun
	Timeout          time.Duration
	Progress         Progress
}

// Apply edits the record of a node and returns it as it was before and after. It waits first until
// nothing is pending of the node: what is pending may hold labels that the record must have first.
// What is so already, see [Changes], is not written.
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
	if err != nil || !Changes(before, after) || e.DryRun == DryRunClient {
		return before, after, err
	}
	door := &records.Records{Client: e.DryRun.Writer(e.Cluster.Client), Namespace: e.Cluster.MetadataNamespace}
	_, err = door.Write(ctx, n.Saved.Stored(), after)
	if errors.Is(err, records.ErrStale) {
		err = ErrChanged
	}
	return before, after, err
}

// Changes reports whether an edit changes the labels of a record, or whose they are.
func Changes(before, after record.Record) bool { return !preserve.Equivalent(before, after) }

// settled reads a node that is away and has a record, when nothing is pending of it.
func (e *Edit) settled(ctx context.Context, name string) (n *inspect.Node, err error) {
	settled, err := poll(ctx, e.Timeout, func() (bool, error) {
		n, err = e.Cluster.Node(ctx, name)
		switch {
		case err != nil:
			return false, err
		case !n.Known():
			return false, fmt.Errorf("there is no node %q, and nothing is saved of one: kubectl nodekeeper list shows which there are", name)
		case n.Live != nil:
			return false, fmt.Errorf("node %q is there: change its labels with kubectl label node %s", name, name)
		case n.Saved.Unreadable != nil:
			return false, fmt.Errorf("the record of node %q: %w: correct it, or forget it", name, n.Saved.Unreadable)
		}
		e.Progress("Waiting for the processors: %s of node %s left", amount.Of(len(n.Pending), "transaction"), name)
		return len(n.Pending) == 0, e.hurry(ctx, n)
	})
	switch {
	case err != nil:
		return nil, err
	case !settled:
		return nil, fmt.Errorf("node %q has %s still, after %s: kubectl nodekeeper show %s says what they wait for", name, amount.Of(len(n.Pending), "pending transaction"), e.Timeout, name)
	case n.Saved.Record == nil:
		return nil, fmt.Errorf("nothing is saved of node %q: only what is saved can be changed", name)
	}
	return n, nil
}

// hurry marks what is pending of a node as what somebody waits for.
func (e *Edit) hurry(ctx context.Context, n *inspect.Node) error {
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

// edited returns the record with the changes. Its revision is the moment at which the node was seen
// to be away.
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
		return record.Record{}, err // also of a withheld label
	}
	after, err := e.Labels.Of(n.Saved.Record.Labels, e.Overwrite)
	if err != nil {
		return record.Record{}, err
	}
	edited := preserve.UserRecordAfter(*n.Saved.Record, after, e.Labels.keys(), n.Now)
	if _, without := record.Bounded(edited.Withheld); without != "" {
		return record.Record{}, errors.New("a record has no room for so many restricted labels of a machine: name some of them as KEY=VALUE, which gives them to the name, or remove some")
	}
	if size := txn.DataBytes(edited.ConfigMap("").Data); size > txn.MaxDataBytes {
		return record.Record{}, fmt.Errorf("the labels would have %d bytes: a record has room for %d", size, txn.MaxDataBytes)
	}
	// With the revision that it has, a restore that is under way could not be told from one of the
	// edited labels.
	if !n.Now.After(n.Saved.Record.Revision) {
		return record.Record{}, fmt.Errorf("the record of node %q is of version %s, and the nodes of this cluster are at %s only: run this again in a moment; "+
			"if the record is of another cluster, kubectl nodekeeper export and import it", n.Name, n.Saved.Record.Revision, n.Now)
	}
	return edited, nil
}
