package cli

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

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/pages"
	"nodekeeper.dev/internal/preserve"
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

// byHand is a transaction that people ask for, of each of some nodes: the event that a watcher would record of the Node as it is now. The
// processors apply it, by the same rules as any other.
type byHand struct {
	typ     txn.Type
	done    string // what an applied one has done, as in "node/x saved"
	policy  labels.Policy
	dryRun  dryRun
	timeout time.Duration
}

// request is one of these transactions, and what will come of it.
type request struct {
	transaction txn.Transaction
	before      *inspect.Node
	decision    preserve.Decision
	isWaiting   bool // the record of the node is to be mended first
}

// apply puts the transactions of these nodes, waits until they are applied, and tells what came of them.
func (h *byHand) apply(ctx context.Context, p *plugin, c *cluster, names []string) error {
	nodes, err := c.nodesOf(ctx, names)
	if err != nil {
		return err
	}
	var requests []request
	var errs []error
	for _, name := range names {
		r, err := h.request(nodes[name], name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case h.isFutile(&r):
			_, _ = fmt.Fprintf(p.Out, "node/%s not %s: %s\n", name, h.done, h.why(&r))
		case h.dryRun == dryRunClient:
			h.foretell(p, &r)
		default:
			requests = append(requests, r)
		}
	}
	if h.dryRun == dryRunClient || len(requests) == 0 {
		return errors.Join(errs...)
	}
	shown := newProgress(p.ErrOut)
	defer shown.done()
	if err := h.put(ctx, c, shown, requests); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if h.dryRun == dryRunServer {
		for i := range requests {
			h.foretell(p, &requests[i])
		}
		return errors.Join(errs...)
	}
	if err := h.wait(ctx, c, shown, requests); err != nil {
		return errors.Join(append(errs, err)...)
	}
	shown.done()
	return errors.Join(append(errs, h.report(ctx, p, c, requests))...)
}

// nodesOf reads all there is of these nodes.
func (c *cluster) nodesOf(ctx context.Context, names []string) (map[string]*inspect.Node, error) {
	if len(names) > fewNodes {
		wanted := make(map[string]bool, len(names))
		for _, name := range names {
			wanted[name] = true
		}
		return c.Nodes(ctx, func(name string) bool { return wanted[name] })
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

// request returns the transaction of a node, and what it will do after those that are pending.
func (h *byHand) request(n *inspect.Node, name string) (request, error) {
	switch {
	case n == nil || !n.IsKnown():
		return request{}, fmt.Errorf("there is no node %q, and nothing is saved of one: kubectl nodekeeper list shows which there are", name)
	case n.Live == nil:
		return request{}, fmt.Errorf("node %q is away, so it is not %s now: its saved labels are put back when it returns, see kubectl nodekeeper show %s", name, h.done, name)
	}
	t := txn.Of(h.typ, n.Live)
	t.ObservedAt, t.AtOnce = time.Now(), true
	r := request{transaction: t, before: n, isWaiting: n.Saved.Unreadable != nil}
	if decisions := n.Forecast(h.policy, t); len(decisions) > 0 {
		r.decision = decisions[len(decisions)-1]
	}
	return r, nil
}

// isFutile says whether it is certain that the transaction would do nothing: not if others are pending, of which it is not known when
// they are applied.
func (h *byHand) isFutile(r *request) bool {
	return r.decision.Action == preserve.Nothing && len(r.before.Pending) == 0 && !r.isWaiting
}

// why says why the transaction does nothing, and what to do if that is not what people want.
func (h *byHand) why(r *request) string {
	name, saved := r.transaction.Node, r.before.Saved.Record
	switch state := r.before.State(); {
	case saved == nil:
		return r.decision.Reason
	case state == inspect.Live && maps.Equal(r.transaction.Labels, saved.Labels):
		return "its labels are those on record"
	case h.typ == txn.Added && state == inspect.Live:
		return r.decision.Reason + "; what differs was changed since: kubectl nodekeeper diff " + name
	case h.typ == txn.Updated && state == inspect.Restoring:
		return "it has not got its saved labels back: kubectl nodekeeper restore " + name
	}
	return r.decision.Reason
}

// foretell says what would be done.
func (h *byHand) foretell(p *plugin, r *request) {
	name := r.transaction.Node
	switch {
	case r.isWaiting:
		_, _ = fmt.Fprintf(p.Out, "node/%s would wait: %v%s\n", name, r.before.Saved.Unreadable, h.dryRun.suffix())
		return
	case r.decision.Action == preserve.Nothing:
		_, _ = fmt.Fprintf(p.Out, "node/%s would not be %s: %s%s\n", name, h.done, h.why(r), h.dryRun.suffix())
		return
	}
	_, _ = fmt.Fprintf(p.Out, "node/%s would be %s: %s%s\n", name, h.done, r.decision.Reason, h.dryRun.suffix())
	before, after := map[string]string{}, r.decision.Labels
	if r.decision.Action == preserve.Save {
		if saved := r.before.Saved.Record; saved != nil {
			before = saved.Labels
		}
		after = r.decision.Record.Labels
	} else {
		before, _ = labels.Split(r.before.Live.Labels)
	}
	writeChanges(p.Out, before, after)
}

// put puts the transactions, and tries again where another one has the name: that one is applied soon.
func (h *byHand) put(ctx context.Context, c *cluster, shown *progress, requests []request) error {
	queue := &txn.Queue{Client: h.dryRun.writer(c), Namespace: c.TransactionNamespace}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(putters)
	for i := range requests {
		t := requests[i].transaction
		group.Go(func() error {
			isPut, err := poll(groupCtx, h.timeout, func() (bool, error) {
				err := queue.Put(groupCtx, t)
				if errors.Is(err, txn.ErrNameTaken) {
					return false, nil
				}
				return err == nil, err
			})
			if err == nil && !isPut {
				return fmt.Errorf("another transaction of node %q at version %s is pending after %s: kubectl nodekeeper show %s says what it waits for",
					t.Node, t.ResourceVersion, h.timeout, t.Node)
			}
			return err
		})
		shown.show("Putting transactions: %d of %d", i+1, len(requests))
	}
	return group.Wait()
}

// wait returns when the transactions are applied, or an error if they are not within the timeout.
func (h *byHand) wait(ctx context.Context, c *cluster, shown *progress, requests []request) error {
	names := make(map[string]string, len(requests)) // of ConfigMaps, to names of nodes
	for i := range requests {
		names[requests[i].transaction.Name()] = requests[i].transaction.Node
	}
	var left []string
	isApplied, err := poll(ctx, h.timeout, func() (bool, error) {
		left = nil
		err := pages.Each(ctx, c.client, pages.Metadata("ConfigMap"), c.TransactionNamespace, func(cm *metav1.PartialObjectMetadata) error {
			if node, ok := names[cm.Name]; ok {
				left = append(left, node)
			}
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("waiting for the processors: %w", err)
		}
		if len(left) > 0 {
			shown.show("Waiting for the processors: %d of %d left, %s for instance", len(left), len(requests), left[0])
		}
		return len(left) == 0, nil
	})
	if err == nil && !isApplied {
		slices.Sort(left)
		return fmt.Errorf("%s not applied after %s (%s): they stay in the queue and are applied later; kubectl nodekeeper show %s says what they wait for",
			count(len(left), "transaction"), h.timeout, abbreviate(left), left[0])
	}
	return err
}

// report tells what there is now.
func (h *byHand) report(ctx context.Context, p *plugin, c *cluster, requests []request) error {
	names := make([]string, len(requests))
	for i := range requests {
		names[i] = requests[i].transaction.Node
	}
	nodes, err := c.nodesOf(ctx, names)
	if err != nil {
		return err
	}
	for i := range requests {
		name := names[i]
		n := nodes[name]
		switch {
		case n == nil || n.Live == nil || n.Saved.Record == nil || n.State() != inspect.Live:
			_, _ = fmt.Fprintf(p.Out, "node/%s: its transaction is applied, but it is not %s; see kubectl nodekeeper show %s\n", name, h.done, name)
		case requests[i].decision.Action == preserve.Nothing:
			_, _ = fmt.Fprintf(p.Out, "node/%s not %s: %s\n", name, h.done, h.why(&requests[i]))
		default:
			_, _ = fmt.Fprintf(p.Out, "node/%s %s: %s, version %s\n", name, h.done, count(len(n.Saved.Record.Labels), "label"), n.Saved.Record.Version)
		}
	}
	return nil
}

// abbreviate returns the first few names.
func abbreviate(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// poll asks until it is done, which it returns, or the time is over. A look that has begun is not cut short by that.
func poll(ctx context.Context, timeout time.Duration, ask func() (isDone bool, err error)) (isDone bool, err error) {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for start := time.Now(); ; {
		if isDone, err = ask(); isDone || err != nil || time.Since(start) >= timeout {
			return isDone, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}
