package byhand

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
)

// Forgettable returns an error unless the record of a node may be removed. The effect of pending
// transactions would be lost with it.
func Forgettable(n *inspect.Node, name string, ignorePending bool) error {
	switch {
	case n == nil || n.Saved.Object == nil:
		return fmt.Errorf("nothing is saved of node %q: kubectl nodekeeper list shows what is", name)
	case !record.Ours(n.Saved.Object):
		return fmt.Errorf("ConfigMap %s/%s is not a record: nothing says that nodekeeper has written it, so it stays as it is", n.Saved.Object.Namespace, name)
	case len(n.Pending) > 0 && !ignorePending:
		return fmt.Errorf("node %q has %s, whose effect would be lost: wait until nothing is pending (kubectl nodekeeper show %s), or give --ignore-pending",
			name, amount.Of(len(n.Pending), "pending transaction"), name)
	}
	return nil
}

// errNodeChanged says that a record must not be removed: what that means is not what it meant when
// the node was read.
var errNodeChanged = errors.New("the Node has changed since it was read: run this again")

// Forget removes the record of a node, conditional on the one that was read. No event from before
// brings it back: of a node that is away a floor is left in its place, of one that is there a
// record of the labels that it has. See [preserve.Forgotten].
//
// The Node is read once more, after the record: n may be older than its record, or as old as the
// user's answer to a question. A node that came back before the record was read must not get a
// floor, by which its labels would be lost. Nor must one that was deleted since, whose user has
// agreed to lose nothing, or one of which something is pending by now, unless ignorePending is set.
func Forget(ctx context.Context, c *inspect.Cluster, dry DryRun, n *inspect.Node, ignorePending bool) error {
	if dry == DryRunClient {
		return nil
	}
	read, now, err := c.NodeNamed(n.Name).At(ctx, n.Name)
	if err != nil {
		return err
	}
	if n.Live != nil && (read == nil || read.UID != n.Live.UID) {
		return fmt.Errorf("node %q is not forgotten: %w", n.Name, errNodeChanged)
	}
	again := *n
	if again.Pending, err = c.Queue().Of(ctx, n.Name); err != nil {
		return err
	}
	if err := Forgettable(&again, n.Name, ignorePending); err != nil {
		return err
	}
	var live *preserve.Node
	if read != nil {
		if err := identified(ctx, c, read); err != nil {
			return err
		}
		live = preserve.NodeOf(read)
	}
	door := &records.Records{Client: dry.Writer(c.Client), Namespace: c.MetadataNamespace}
	_, err = door.Forget(ctx, n.Saved.Stored(), preserve.Forgotten(n.Name, live, now))
	if errors.Is(err, records.ErrStale) {
		return fmt.Errorf("node %q is not forgotten: %w", n.Name, ErrChanged)
	}
	return err
}

// identified reads which machine a Node is, if it has labels of which that must be known.
func identified(ctx context.Context, c *inspect.Cluster, n *metav1.PartialObjectMetadata) error {
	if !preserve.HasRestricted(n.Labels, agents.Machine(n)) {
		return nil
	}
	return c.Nodes().Identify(ctx, n)
}
