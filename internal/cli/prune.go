package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/rand"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/nodelock"
)

type pruneOptions struct {
	olderThan age
	isYes     bool
	dryRun    dryRun
}

func newPruneCommand(p *plugin) *cobra.Command {
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune --older-than=AGE",
		Short: "Remove the saved labels of nodes that have been away for long",
		Long: `Remove the records of nodes that have been away for longer than an age. This
shows them and asks first.

A node is away since a processor with a retention time first found it missing,
or else since its record was last written. One that is there, or has pending
transactions, is never touched; one that returns at that very moment gets its
record back. Processors do the same by themselves with --retention.`,
		Example: `  # which ones are these?
  kubectl nodekeeper prune --older-than=30d --dry-run=client

  # remove them
  kubectl nodekeeper prune --older-than=30d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.prune(cmd.Context(), &o) },
	}
	cmd.Flags().Var(&o.olderThan, "older-than", "For how long a node has to be away: 30d, 12h, 90m for instance.")
	_ = cmd.MarkFlagRequired("older-than") // the flag is there
	addYesFlag(cmd, &o.isYes)
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
	now := time.Now()
	var names []string
	for _, s := range survey.Nodes {
		if s.State == inspect.Away && s.Pending == 0 && s.AwaySince != nil && now.Sub(s.AwaySince.Time) >= time.Duration(o.olderThan) {
			names = append(names, s.Name)
			_, _ = fmt.Fprintf(p.ErrOut, "%s: away for %s, %s\n", s.Name, ageOf(s.AwaySince, now), count(s.Labels, "saved label"))
		}
	}
	if len(names) == 0 {
		_, _ = fmt.Fprintf(p.ErrOut, "No node has been away for longer than %s.\n", &o.olderThan)
		return nil
	}
	if !o.dryRun.isDry() {
		if err := p.confirmed(o.isYes, "Remove "+count(len(names), "record")+"?"); err != nil {
			return err
		}
	}
	shown := newProgress(p.ErrOut)
	defer shown.done()
	locks := nodelock.New(c.client, c.TransactionNamespace, lockIdentity())
	var errs []error
	for i, name := range names {
		shown.show("Removing records: %d of %d", i+1, len(names))
		told, err := o.pruneOne(ctx, c, locks, name)
		shown.done()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "node/%s %s%s\n", name, told, o.dryRun.suffix())
	}
	return errors.Join(errs...)
}

// pruneOne removes one record under the node's lock, as a processor with a retention time does, unless a fresh look shows that the node is not just away.
func (o *pruneOptions) pruneOne(ctx context.Context, c *cluster, locks *nodelock.Locker, name string) (told string, err error) {
	if o.dryRun.isDry() { // a lock is a write
		return o.pruneLocked(ctx, c, name)
	}
	err = locks.Do(ctx, name, func(ctx context.Context) (err error) {
		told, err = o.pruneLocked(ctx, c, name)
		return err
	})
	if errors.Is(err, nodelock.ErrHeld) {
		return "kept: a processor is at work for it", nil
	}
	return told, err
}

func (o *pruneOptions) pruneLocked(ctx context.Context, c *cluster, name string) (told string, err error) {
	n, err := c.Node(ctx, name)
	switch {
	case err != nil:
		return "", err
	case n.Live != nil || len(n.Pending) > 0:
		return "kept: it is back", nil
	case n.Saved.Object == nil:
		return "forgotten by somebody else", nil
	case time.Since(inspect.LastHeard(n.Saved.Object)) < time.Duration(o.olderThan):
		return "kept: it was heard of", nil
	}
	if err := c.removeRecord(ctx, o.dryRun, n.Saved.Object); err != nil {
		return "", err
	}
	if o.dryRun.isDry() {
		return "forgotten", nil
	}
	// No write can be conditional on there being no Node: look once more, while no processor can act on what came in between.
	after, err := c.Node(ctx, name)
	if err == nil && after.Live == nil && len(after.Pending) == 0 {
		return "forgotten", nil
	}
	if putErr := c.putBack(ctx, n.Saved.Object); err != nil || putErr != nil {
		return "", errors.Join(err, putErr)
	}
	return "kept: it came back just now", nil
}

// putBack makes a record anew that was removed.
func (c *cluster) putBack(ctx context.Context, removed *corev1.ConfigMap) error {
	again := removed.DeepCopy()
	again.UID, again.ResourceVersion, again.ManagedFields = "", "", nil
	err := c.client.Create(ctx, again)
	if apierrors.IsAlreadyExists(err) {
		return nil // the node's own event made one
	}
	if err != nil {
		return fmt.Errorf("putting the record of node %q back: %w", removed.Name, err)
	}
	return nil
}

// lockIdentity names this process among those that take locks.
func lockIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return "kubectl-nodekeeper-" + strings.ToLower(host) + "-" + rand.String(6)
}

// age is a flag: a duration that may be in days.
type age time.Duration

const day = 24 * time.Hour

// Set reads what people type.
func (a *age) Set(text string) error {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > int(maxAge/day) {
			return fmt.Errorf("%q is no number of days", days)
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

// String returns it as people read it.
func (a *age) String() string { return duration.HumanDuration(time.Duration(*a)) }

// Type names it in help.
func (a *age) Type() string { return "age" }
