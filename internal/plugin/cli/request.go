package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/plugin/cli/changes"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/txn"
)

// requesting is a command that requests transactions and reports their effects.
type requesting struct {
	byhand.Requests

	dryRun dryRun
}

// runAny is run for any number of nodes, including none.
func (h *requesting) runAny(ctx context.Context, p *plugin, c *cluster, servers *serving, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return h.run(ctx, p, c, servers, names)
}

// run puts the transactions of these nodes, waits until they are applied, and reports their
// effects.
func (h *requesting) run(ctx context.Context, p *plugin, c *cluster, servers *serving, names []string) error {
	shown := output.NewProgress(p.ErrOut)
	defer shown.Done()
	h.Cluster, h.Policy, h.DryRun, h.Progress = &c.Cluster, servers.policy, h.dryRun.DryRun, shown.Show
	h.KnowsAgents = servers.knowsAgents
	servers.warn(p.ErrOut, forecastSettings, names...)
	requests, problems, err := h.prepare(ctx, p, names)
	if err != nil || len(requests) == 0 {
		return errors.Join(problems, err)
	}
	if err := h.Put(ctx, requests); err != nil {
		return errors.Join(problems, err)
	}
	if h.DryRun == byhand.DryRunServer {
		for i := range requests {
			h.preview(p, &requests[i])
		}
		return problems
	}
	if err := h.Wait(ctx, requests); err != nil {
		return errors.Join(problems, err)
	}
	shown.Done()
	return errors.Join(problems, h.report(ctx, p, requests))
}

// prepare returns the requests to put. It reports requests without effect, and with
// --dry-run=client the effects of the others.
func (h *requesting) prepare(ctx context.Context, p *plugin, names []string) (requests []byhand.Request, problems, err error) {
	nodes, err := byhand.ReadNodes(ctx, h.Cluster, names)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, name := range names {
		n, err := h.Settled(ctx, nodes[name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r, err := h.Of(n, name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case r.Futile():
			_, _ = fmt.Fprintf(p.Out, "node/%s not %s: %s\n", name, h.Done, h.why(&r))
		case h.DryRun == byhand.DryRunClient:
			h.preview(p, &r)
		default:
			requests = append(requests, r)
		}
	}
	return requests, errors.Join(errs...), nil
}

// why returns the reason why a transaction does nothing, with advice.
func (h *requesting) why(r *byhand.Request) string {
	name, saved := r.Transaction.Node, r.Before.Saved.Record
	switch state := r.Before.State(); {
	case saved == nil:
		return r.Decision.Reason
	case state == inspect.Live && maps.Equal(r.Transaction.Labels, saved.Labels):
		return "its labels are those on record"
	case h.Type == txn.Added && state == inspect.Live:
		return r.Decision.Reason + "; what differs was changed since: kubectl nodekeeper diff " + name
	case h.Type == txn.Updated && state == inspect.Restoring:
		return "it does not have its saved labels: kubectl nodekeeper restore " + name
	}
	return r.Decision.Reason
}

// preview prints the expected effect of a request.
func (h *requesting) preview(p *plugin, r *byhand.Request) {
	name := r.Transaction.Node
	switch {
	case r.Blocked:
		_, _ = fmt.Fprintf(p.Out, "node/%s would wait: %v%s\n", name, r.Before.Saved.Unreadable, h.dryRun.suffix())
		return
	case r.Decision.Action == preserve.Nothing && isQueued(r):
		_, _ = fmt.Fprintf(p.Out, "node/%s would be %s: a watcher has recorded this, and it would be applied at once%s\n", name, h.Done, h.dryRun.suffix())
		return
	case r.Decision.Action == preserve.Nothing:
		_, _ = fmt.Fprintf(p.Out, "node/%s would not be %s: %s%s\n", name, h.Done, h.why(r), h.dryRun.suffix())
		return
	}
	_, _ = fmt.Fprintf(p.Out, "node/%s would be %s: %s%s\n", name, h.Done, r.Decision.Reason, h.dryRun.suffix())
	before, after := map[string]string{}, r.Decision.Labels
	if r.Decision.Action == preserve.Save {
		if saved := r.Before.Saved.Record; saved != nil {
			before = saved.Labels
		}
		after = r.Decision.Record.Labels
	} else {
		before = r.Before.Live.Labels
	}
	changes.Write(p.Out, before, after)
}

// isQueued reports whether a watcher has recorded the same event, which the request makes urgent.
func isQueued(r *byhand.Request) bool {
	return slices.ContainsFunc(r.Before.Pending, func(t queue.Queued) bool { return t.IsSameEvent(r.Transaction) })
}

// isSaved reports whether the record now has the labels of a request to save. An earlier
// transaction may have saved them.
func isSaved(r *byhand.Request, now *inspect.Node) bool {
	return r.Transaction.Type == txn.Updated && maps.Equal(r.Transaction.Labels, now.Saved.Record.Labels)
}

// addMissingEndFlag adds --ignore-missing-end.
func addMissingEndFlag(cmd *cobra.Command, value *bool) {
	cmd.Flags().BoolVar(value, "ignore-missing-end", false,
		"Do not wait until the end of the node's last incarnation is on record: what a watcher has yet to record of it has no effect then.")
}

// report prints the effects of the requests.
func (h *requesting) report(ctx context.Context, p *plugin, requests []byhand.Request) error {
	names := make([]string, len(requests))
	for i := range requests {
		names[i] = requests[i].Transaction.Node
	}
	nodes, err := byhand.ReadNodes(ctx, h.Cluster, names)
	if err != nil {
		return err
	}
	for i := range requests {
		name := names[i]
		n := nodes[name]
		switch {
		case n == nil || n.Live == nil || n.Saved.Record == nil || n.State() != inspect.Live:
			_, _ = fmt.Fprintf(p.Out, "node/%s: its transaction is applied, but it is not %s; see kubectl nodekeeper show %s\n", name, h.Done, name)
		case requests[i].Decision.Action == preserve.Nothing && !isSaved(&requests[i], n):
			_, _ = fmt.Fprintf(p.Out, "node/%s not %s: %s\n", name, h.Done, h.why(&requests[i]))
		default:
			_, _ = fmt.Fprintf(p.Out, "node/%s %s: %s, version %s\n", name, h.Done, amount.Of(len(n.Saved.Record.Labels), "label"), n.Saved.Record.Revision)
		}
	}
	return nil
}
