package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/byhand"
)

type pruneOptions struct {
	olderThan age
	yes       bool
	dryRun    dryRun
}

func newPruneCommand(p *plugin) *cobra.Command {
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune --older-than=AGE",
		Short: "Remove the saved labels of nodes that have been away for a long time",
		Long: `Remove the records of nodes that have been away for longer than an age. This
shows them and asks first.

The absence of a node counts from when a processor with a retention time first
found it missing, or else from when its record was last written. A node that is
there, or has pending transactions, is never touched; a node that returns at that
very moment gets its record back. Processors do the same by themselves with --retention.`,
		Example: `  # which ones are these?
  kubectl nodekeeper prune --older-than=30d --dry-run=client

  # remove them
  kubectl nodekeeper prune --older-than=30d`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.prune(cmd.Context(), &o) },
	}
	cmd.Flags().Var(&o.olderThan, "older-than", "How long a node must have been away: 30d, 12h, 90m for instance.")
	_ = cmd.MarkFlagRequired("older-than") // the flag exists
	addYesFlag(cmd, &o.yes)
	addDryRunFlag(cmd, &o.dryRun)
	return cmd
}

func (p *plugin) prune(ctx context.Context, o *pruneOptions) error {
	if err := o.dryRun.validate(); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	survey, err := c.Survey(ctx, apilabels.Everything())
	if err != nil {
		return err
	}
	now := c.Now()
	found := byhand.Prunable(survey, time.Duration(o.olderThan), now)
	for _, s := range found {
		_, _ = fmt.Fprintf(p.ErrOut, "%s: away for %s, %s\n", s.Name, output.AgeOf(s.LastHeard, now), amount.Of(s.Labels, "saved label"))
	}
	if len(found) == 0 {
		_, _ = fmt.Fprintf(p.ErrOut, "No node has been away for longer than %s.\n", &o.olderThan)
		return nil
	}
	if !o.dryRun.Dry() {
		if err := p.confirmed(o.yes, "Remove "+amount.Of(len(found), "record")+"?"); err != nil {
			return err
		}
	}
	shown := output.NewProgress(p.ErrOut)
	defer shown.Done()
	prune := byhand.NewPrune(&c.Cluster, o.dryRun.DryRun, time.Duration(o.olderThan), p.warnOfRepetition)
	var errs []error
	for i, s := range found {
		shown.Show("Removing records: %d of %d", i+1, len(found))
		result, err := prune.Remove(ctx, s.Name)
		shown.Done()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "node/%s %s%s\n", s.Name, result, o.dryRun.suffix())
	}
	return errors.Join(errs...)
}

// warnOfRepetition warns of a check after a removal that fails, and so is repeated.
func (p *plugin) warnOfRepetition(node string, err error) {
	_, _ = fmt.Fprintf(p.ErrOut, "Still checking whether node %s has returned while its record was removed: %v\n", node, err)
}

// age is a flag: a duration that may be in days.
type age time.Duration

const day = 24 * time.Hour

// Set implements [pflag.Value].
func (a *age) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > int(maxAge/day) {
			return fmt.Errorf("%q is not a number of days", days)
		}
		*a = age(n) * age(day)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < 0 {
		return errors.New("give a positive duration")
	}
	*a = age(d)
	return nil
}

// maxAge is more than a hundred years.
const maxAge = 40000 * day

// String implements [pflag.Value].
func (a *age) String() string { return duration.HumanDuration(time.Duration(*a)) }

// Type implements [pflag.Value]: it is the placeholder in help.
func (a *age) Type() string { return "age" }
