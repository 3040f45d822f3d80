package apply

import (
	"context"
	"slices"
	"sync"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// latest is the latest revision of all Nodes that this process has read. It is safe for concurrent
// use.
type latest struct {
	mu  sync.Mutex
	rev revision.Revision
}

// raise takes a revision into account, and returns the latest one.
func (l *latest) raise(rev revision.Revision) revision.Revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rev = revision.Max(l.rev, rev)
	return l.rev
}

// Now returns the current revision of all Nodes, or zero if the API server returns none.
func (a *Applier) Now(ctx context.Context) (revision.Revision, error) {
	now, err := a.Nodes.Now(ctx)
	if err == nil {
		a.latest.raise(now)
	}
	return now, err //nolint:wrapcheck // it has the context already
}

// present returns the current revision of all Nodes if the known record or a transaction may be of
// an earlier history, see [preserve.Ahead], and zero otherwise. A record that is later than
// everything known of the Nodes needs a read: it is usually just newer than transactions that were
// recorded late.
//
// If the record is of an earlier history, present reads the Node, too. The plan then begins with a
// save, which proves the record to be current.
func (a *Applier) present(ctx context.Context, queue []txn.Transaction, v *view) (revision.Revision, error) {
	hasEarlier := slices.ContainsFunc(queue, func(t txn.Transaction) bool { return t.Ahead })
	seen := a.latest.raise(revision.Revision{})
	for _, t := range queue {
		seen = revision.Max(seen, t.Revision)
	}
	if v.node != nil {
		seen = revision.Max(seen, v.node.Revision)
	}
	if !hasEarlier && !preserve.Ahead(v.stored.Record, seen) {
		return revision.Revision{}, nil
	}
	now, err := a.Now(ctx)
	if err != nil || now.IsZero() || !preserve.Ahead(v.stored.Record, now) {
		return now, err
	}
	if v.readAt.IsZero() {
		err = a.readNode(ctx, queue[0].Node, v)
	}
	if v.node != nil {
		now = revision.Max(now, v.node.Revision)
	}
	return now, err
}
