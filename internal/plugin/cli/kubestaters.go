package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
	"nodekeeper.dev/internal/record"
)

// takeOver imports the labels that kube-state-rs has saved. What cannot be read or stored does not
// keep the rest from being imported.
func (p *plugin) takeOver(ctx context.Context, o *importOptions, files []string) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	servers, err := p.serve(ctx, c, true)
	if err != nil {
		return err
	}
	found, err := p.inherited(ctx, c, files)
	if err != nil {
		return err
	}
	if len(found.Saved)+len(found.Unreadable)+len(found.Transactions) == 0 {
		return fmt.Errorf("there is nothing of %s", record.KubeStateRS)
	}
	errs := slices.Clone(found.Unreadable)
	shown := output.NewProgress(p.ErrOut)
	var taken []string
	for i, saved := range found.Saved {
		shown.Show("Importing: %d of %d", i+1, len(found.Saved))
		t, err := byhand.PrepareTakeover(ctx, &c.Cluster, saved, o.overwrite)
		if err == nil {
			err = t.Store(ctx, &c.Cluster, o.dryRun.DryRun)
		}
		shown.Done()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.describeTakeover(t, o)
		if t.Taken() {
			taken = append(taken, t.Name)
		}
	}
	p.describeLeftovers(found.Transactions)
	if !o.dryRun.Dry() {
		owed, err := byhand.OwedNow(ctx, &c.Cluster, taken)
		if err == nil {
			err = p.restoreImported(ctx, o, c, servers, owed)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inherited returns what kube-state-rs has left behind in the cluster, or in a file.
func (p *plugin) inherited(ctx context.Context, c *cluster, files []string) (found *byhand.Inheritance, err error) {
	if len(files) == 0 {
		return byhand.Inherited(ctx, &c.Cluster)
	}
	err = p.readFile(files[0], func(from io.Reader) (err error) {
		found, err = byhand.ReadInheritance(from)
		return err
	})
	return found, err
}

func (p *plugin) describeTakeover(t *byhand.Takeover, o *importOptions) {
	if t.Taken() {
		_, _ = fmt.Fprintf(p.Out, "node/%s imported%s\n", t.Name, o.dryRun.suffix())
		return
	}
	_, _ = fmt.Fprintf(p.Out, "node/%s not imported: %s%s\n", t.Name, t.Why, o.dryRun.suffix())
	for _, key := range slices.Sorted(maps.Keys(t.Left)) {
		_, _ = fmt.Fprintf(p.Out, "  not taken over: %s=%s\n", key, output.Harmless(t.Left[key]))
	}
}

// describeLeftovers describes how to remove the transactions of kube-state-rs.
func (p *plugin) describeLeftovers(transactions []*corev1.ConfigMap) {
	if len(transactions) == 0 {
		return
	}
	names := make([]string, len(transactions))
	for i, cm := range transactions {
		names[i] = cm.Name
	}
	_, _ = fmt.Fprintf(p.ErrOut, "%s of %s left in the queue, without effect. To remove them:\n  kubectl nodekeeper discard %s\n",
		amount.Of(len(names), "transaction"), record.KubeStateRS, strings.Join(names, " "))
}
