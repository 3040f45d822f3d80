package byhand

import (
	"context"
	"errors"
	"fmt"

	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/records"
)

// Forgettable returns an error unless the record of a node may be removed. Pending transactions
// prevent that unless ignorePending is set: their effect would be lost.
func Forgettable(n *inspect.Node, name string, ignorePending bool) error {
	switch {
	case n == nil || n.Saved.Object == nil:
		return fmt.Errorf("no labels are saved for node %q: kubectl nodekeeper list shows the saved nodes", name)
	case !record.Ours(n.Saved.Object):
		return fmt.Errorf("ConfigMap %s/%s is not a record that nodekeeper has written, so it is left unchanged: %s", n.Saved.Object.Namespace, name, n.Saved.Advice())
	case len(n.Pending) > 0 && !ignorePending:
		return fmt.Errorf("node %q has %s, whose effect would be lost: wait until nothing is pending (kubectl nodekeeper show %s), or give --ignore-pending",
			name, amount.Of(len(n.Pending), "pending transaction"), name)
	}
	return nil
}

// errNodeChanged refuses to forget a node because its state changed after the user saw it.
var errNodeChanged = errors.New("the Node has changed since it was read: run this again")

// Forget removes the record of a node, conditional on the record that was read. A floor replaces
// the record of a node that is away. A record of its current labels replaces that of a live node.
// So no earlier event restores the removed record. See [preserve.Forgotten].
//
// Forget reads the Node again, after the record, because n may be as old as the user's
// confirmation. It fails if a node has returned or was deleted since, as a floor would then lose
// labels that the user did not agree to lose; and if transactions are pending by now, unless
// ignorePending is set.
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
	door := &records.Records{Client: dry.Writer(c.Client), Namespace: c.MetadataNamespace}
	_, err = door.Forget(ctx, n.Saved.Stored(), preserve.Forgotten(n.Name, n.Saved.Record, read, now))
	if errors.Is(err, records.ErrStale) {
		return fmt.Errorf("node %q is not forgotten: %w", n.Name, ErrChanged)
	}
	return err
}
