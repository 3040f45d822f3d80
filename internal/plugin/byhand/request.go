package byhand

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/txn"
)

const (
	// putters bounds concurrent puts of transactions.
	putters = 16
	// pollPeriod is the time between two reads of the queue.
	pollPeriod = 200 * time.Millisecond
	// fewNodes bounds the nodes that are read one by one. For more, lists cost less.
	fewNodes = 10
)

// Progress reports the progress of a long request.
type Progress func(format string, args ...any)

// Requests creates transactions for nodes on behalf of a user: the events that a watcher would
// record for the current Nodes. The processors apply them like any other. All fields but
// KnowsAgents are required.
type Requests struct {
	Cluster *inspect.Cluster
	Type    txn.Type
	// Done is the participle of an applied transaction, as in "node x is saved".
	Done string
	// KeepsEdits leaves what users have set on a live node since it was created. Otherwise a restore
	// replaces it.
	KeepsEdits bool
	// IgnoreMissingEnd restores from a record without the end of its incarnation: see awaitEnd.
	IgnoreMissingEnd bool

	// Policy returns the restore policy of a node.
	Policy func(node string) labels.Policy
	// KnowsAgents reports whether the view of a node has the field managers of its machine's agents as
	// the servers run with. Otherwise the requests report no setters of labels. Nil means never.
	KnowsAgents func(node string) bool
	DryRun      DryRun
	Timeout     time.Duration
	Progress    Progress
}

// Request is one of these transactions with its expected effect.
type Request struct {
	Transaction txn.Transaction
	// Before is the node before the request.
	Before *inspect.Node
	// Decision is the effect of the transaction after the pending ones, if nothing else happens.
	Decision preserve.Decision
	// Blocked reports whether the record of the node must be corrected first.
	Blocked bool
}

// Futile reports whether the transaction certainly does nothing. While others are pending, that is
// not certain.
func (r *Request) Futile() bool {
	// A request to save that would restore instead, see [preserve.Decide].
	isOwedRestore := r.Decision.Action == preserve.Restore && r.Transaction.Type == txn.Updated
	return (r.Decision.Action == preserve.Nothing || isOwedRestore) && len(r.Before.Pending) == 0 && !r.Blocked
}

// ReadNodes reads these nodes by name. A node that does not exist, and has no record, may be nil.
func ReadNodes(ctx context.Context, c *inspect.Cluster, names []string) (map[string]*inspect.Node, error) {
	if len(names) > fewNodes {
		wanted := make(map[string]bool, len(names))
		for _, name := range names {
			wanted[name] = true
		}
		return c.Every(ctx, func(name string) bool { return wanted[name] })
	}
	nodes := make(map[string]*inspect.Node, len(names))
	for _, name := range names {
		n, err := c.Node(ctx, name)
		if err != nil {
			return nil, err
		}
		nodes[name] = n
	}
	return nodes, nil
}

// Settled returns a node after all events of its former incarnation are recorded, so that the
// request cannot overtake them. It waits only if the request depends on them, and never in a dry
// run.
func (h *Requests) Settled(ctx context.Context, n *inspect.Node) (*inspect.Node, error) {
	if h.Type != txn.Added || h.IgnoreMissingEnd || h.DryRun.Dry() || n == nil || n.Live == nil || !endMissing(n) {
		return n, nil
	}
	return awaitEnd(ctx, h.Cluster, n, h.Timeout, h.Progress)
}

// Of returns the request for a node.
func (h *Requests) Of(n *inspect.Node, name string) (Request, error) {
	switch {
	case n == nil || !n.Found():
		return Request{}, fmt.Errorf("node %q not found, and no labels are saved for it: see kubectl nodekeeper list", name)
	case n.Live == nil:
		return Request{}, fmt.Errorf("node %q is away, so it is not %s now: its saved labels are restored when it returns, see kubectl nodekeeper show %s", name, h.Done, name)
	}
	t := txn.Of(h.Type, n.Live)
	t.ObservedAt, t.AtOnce = h.Cluster.Now(), true
	t.FoundsRecord = h.KeepsEdits && h.Type == txn.Added // otherwise it would replace edits, see [txn.Transaction.IsRequest]
	if h.KnowsAgents == nil || !h.KnowsAgents(name) {
		// The ownership of the labels is left open. That of the record remains valid.
		t.Machine, t.Unclear, t.Owners = "", labels.KeysOf(maps.Keys(t.Labels)), ""
	}
	r := Request{Transaction: t, Before: n, Blocked: n.Saved.Unreadable != nil}
	if decisions := n.Forecast(h.Policy(name), t); len(decisions) > 0 {
		r.Decision = decisions[len(decisions)-1]
	}
	return r, nil
}

// Put puts the transactions. It marks a transaction that a watcher has already put as urgent, and
// retries while another event has the same name, and if the object with that name was removed
// meanwhile.
func (h *Requests) Put(ctx context.Context, requests []Request) error {
	q := &queue.Queue{Client: h.DryRun.Writer(h.Cluster.Client), Namespace: h.Cluster.TransactionNamespace}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(putters)
	for i := range requests {
		t := requests[i].Transaction
		group.Go(func() error {
			put, err := poll(groupCtx, h.Timeout, func() (bool, error) {
				err := q.Put(groupCtx, t)
				if queue.IsNameConflict(err) {
					return false, nil
				}
				return err == nil, err
			})
			if err == nil && !put {
				return fmt.Errorf("another transaction of node %q at version %s is pending after %s: kubectl nodekeeper show %s shows the reason",
					t.Node, t.Revision, h.Timeout, t.Node)
			}
			return err
		})
		h.Progress("Putting transactions: %d of %d", i+1, len(requests))
	}
	return group.Wait()
}

// Wait returns when the transactions are applied, or with an error after the timeout.
func (h *Requests) Wait(ctx context.Context, requests []Request) error {
	names := make(map[string]string, len(requests)) // names of nodes, by those of ConfigMaps
	for i := range requests {
		names[requests[i].Transaction.Name()] = requests[i].Transaction.Node
	}
	var left []string
	applied, err := poll(ctx, h.Timeout, func() (bool, error) {
		var err error
		if left, err = h.pending(ctx, names); err != nil {
			return false, fmt.Errorf("waiting for the processors: %w", err)
		}
		if len(left) > 0 {
			h.Progress("Waiting for the processors: %d of %d left, %s for instance", len(left), len(requests), left[0])
		}
		return len(left) == 0, nil
	})
	if err == nil && !applied {
		slices.Sort(left)
		return fmt.Errorf("%s not applied after %s (%s): they stay in the queue and are applied later; kubectl nodekeeper show %s shows the reason",
			amount.Of(len(left), "transaction"), h.Timeout, Abbreviate(left), left[0])
	}
	return err
}

// pending returns the nodes whose transactions are still in the queue. It reads a few one by one:
// listing a large queue several times a second would be a needless load.
func (h *Requests) pending(ctx context.Context, names map[string]string) (nodes []string, err error) {
	q := h.Cluster.Queue()
	if len(names) > fewNodes {
		err := q.EachName(ctx, func(cm *metav1.PartialObjectMetadata) error {
			if node, ok := names[cm.Name]; ok {
				nodes = append(nodes, node)
			}
			return nil
		})
		return nodes, err
	}
	for name, node := range names {
		cm, err := q.Read(ctx, name)
		if err != nil {
			return nil, err
		}
		if cm != nil {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// Abbreviate returns the first few names.
func Abbreviate(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// poll calls ask until it is done, fails, or the timeout is over, which does not interrupt a call.
// It returns whether it is done.
func poll(ctx context.Context, timeout time.Duration, ask func() (done bool, err error)) (done bool, err error) {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for start := time.Now(); ; {
		if done, err = ask(); done || err != nil || time.Since(start) >= timeout {
			return done, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}
