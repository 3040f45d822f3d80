package byhand

import (
	"context"
	"errors"
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
	// putters is how many transactions are put at a time.
	putters = 16
	// pollPeriod is the time between two looks at the queue.
	pollPeriod = 200 * time.Millisecond
	// fewNodes is up to how many nodes are read one by one, and not by lists of all.
	fewNodes = 10
)

// Progress is called with how far a long request is.
type Progress func(format string, args ...any)

// Requests are transactions that people ask for, of each of some nodes: the event that a watcher
// would record of the Node as it is now. The processors apply them, by the same rules as any other.
// All fields are required.
type Requests struct {
	Cluster *inspect.Cluster
	Type    txn.Type
	// Done is what an applied one has done, as in "node x is saved".
	Done string
	// IgnoreMissingEnd restores from a record that does not have the end of its incarnation: see
	// awaitEnd.
	IgnoreMissingEnd bool

	// Policy returns what a restore of a node goes by.
	Policy   func(node string) labels.Policy
	DryRun   DryRun
	Timeout  time.Duration
	Progress Progress
}

// Request is one of these transactions, and what will come of it.
type Request struct {
	Transaction txn.Transaction
	// Before is the node as it was read.
	Before *inspect.Node
	// Decision is what the transaction will do after those that are pending, if nothing else
	// happens.
	Decision preserve.Decision
	// Blocked reports that somebody has to correct the record of the node first.
	Blocked bool
}

// Futile reports whether it is certain that the transaction does nothing: it is not if others are
// pending, as nobody knows when they are applied.
func (r *Request) Futile() bool {
	return r.Decision.Action == preserve.Nothing && len(r.Before.Pending) == 0 && !r.Blocked
}

// ReadNodes reads all there is of these nodes. One that there is nothing of may be nil.
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

// Settled returns the node as it is once nothing that watchers have seen of its former incarnation
// can be overtaken. It does not wait for a node that it matters nothing to, nor in a dry run.
func (h *Requests) Settled(ctx context.Context, n *inspect.Node) (*inspect.Node, error) {
	if h.Type != txn.Added || h.IgnoreMissingEnd || h.DryRun.Dry() || n == nil || n.Live == nil || !endMissing(n) {
		return n, nil
	}
	return awaitEnd(ctx, h.Cluster, n, h.Timeout, h.Progress)
}

// Of returns the request for a node.
func (h *Requests) Of(n *inspect.Node, name string) (Request, error) {
	switch {
	case n == nil || !n.Known():
		return Request{}, fmt.Errorf("there is no node %q, and nothing is saved of one: kubectl nodekeeper list shows which there are", name)
	case n.Live == nil:
		return Request{}, fmt.Errorf("node %q is away, so it is not %s now: its saved labels are put back when it returns, see kubectl nodekeeper show %s", name, h.Done, name)
	}
	t := txn.Of(h.Type, n.Live)
	t.ObservedAt, t.AtOnce = time.Now(), true
	// Only the servers know for certain which managers are agents. What they have stored still
	// holds.
	t.Machine, t.Unclear = "", labels.KeysOf(maps.Keys(t.Labels))
	r := Request{Transaction: t, Before: n, Blocked: n.Saved.Unreadable != nil}
	if decisions := n.Forecast(h.Policy(name), t); len(decisions) > 0 {
		r.Decision = decisions[len(decisions)-1]
	}
	return r, nil
}

// Put puts the transactions. If a watcher was first, what it put is marked as what somebody waits
// for; if another event has the name of one, Put retries until that is applied.
func (h *Requests) Put(ctx context.Context, requests []Request) error {
	q := &queue.Queue{Client: h.DryRun.Writer(h.Cluster.Client), Namespace: h.Cluster.TransactionNamespace}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(putters)
	for i := range requests {
		t := requests[i].Transaction
		group.Go(func() error {
			put, err := poll(groupCtx, h.Timeout, func() (bool, error) {
				err := q.Put(groupCtx, t)
				if errors.Is(err, queue.ErrNameTaken) {
					return false, nil
				}
				return err == nil, err
			})
			if err == nil && !put {
				return fmt.Errorf("another transaction of node %q at version %s is pending after %s: kubectl nodekeeper show %s says what it waits for",
					t.Node, t.Revision, h.Timeout, t.Node)
			}
			return err
		})
		h.Progress("Putting transactions: %d of %d", i+1, len(requests))
	}
	return group.Wait()
}

// Wait returns when the transactions are applied, or an error if they are not within the timeout.
func (h *Requests) Wait(ctx context.Context, requests []Request) error {
	names := make(map[string]string, len(requests)) // of ConfigMaps, to names of nodes
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
		return fmt.Errorf("%s not applied after %s (%s): they stay in the queue and are applied later; kubectl nodekeeper show %s says what they wait for",
			amount.Of(len(left), "transaction"), h.Timeout, Abbreviate(left), left[0])
	}
	return err
}

// pending returns the nodes of those transactions that are still in the queue. A few of them are
// read one by one: a list of a large queue several times a second is a needless load.
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

// poll asks until it is done, which it returns, or the time is over. A look that has begun is not
// cut short by that.
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
