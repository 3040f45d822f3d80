package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/inspect"
	"nodekeeper.dev/internal/processor"
	"nodekeeper.dev/internal/record"
)

// retriedAtAnnotation says when people asked for another attempt. The change alone is what brings it about.
const retriedAtAnnotation = "nodekeeper.dev/retried-at"

func newRetryCommand(p *plugin) *cobra.Command {
	var dry dryRun
	cmd := &cobra.Command{
		Use:   "retry NODE | TRANSACTION...",
		Short: "Have stuck transactions tried again at once",
		Long: `Have transactions tried again at once: all of a node, or some by their names, as
kubectl nodekeeper status shows them: NODE.VERSION of a transaction, and the name
of the ConfigMap of what is none.

A processor that cannot apply a transaction tries again by itself, after up to 30
seconds. What is no transaction was marked, and is looked at once more: it is
applied if it was mended, or marked again.`,
		Example: `  # all of a node
  kubectl nodekeeper retry node-1

  # one
  kubectl nodekeeper retry node-1.2571`,
		Args:              someTransactions,
		ValidArgsFunction: p.names(0, transactionNames),
		RunE:              func(cmd *cobra.Command, args []string) error { return p.retry(cmd.Context(), dry, args) },
	}
	addDryRunFlag(cmd, &dry)
	return cmd
}

// someTransactions is for commands that are about one transaction or more.
func someTransactions(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("give the names of transactions, as kubectl nodekeeper status shows them: %s", usage(cmd))
	}
	return nil
}

func (p *plugin) retry(ctx context.Context, dry dryRun, args []string) error {
	if err := dry.validate(); err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	var all []*corev1.ConfigMap
	for _, arg := range args {
		found, err := c.retried(ctx, arg)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	var errs []error
	for _, cm := range all {
		if err := c.touch(ctx, dry, cm); err != nil {
			errs = append(errs, err)
			continue
		}
		_, _ = fmt.Fprintf(p.Out, "transaction/%s %s%s\n", shortName(cm), describeRetry(cm), dry.suffix())
	}
	return errors.Join(errs...)
}

// retried returns what an argument names: one transaction, or all of a node.
func (c *cluster) retried(ctx context.Context, arg string) ([]*corev1.ConfigMap, error) {
	cm, err := c.transaction(ctx, arg)
	if err == nil {
		return []*corev1.ConfigMap{cm}, nil
	}
	names, nameErr := nodeNames([]string{arg})
	if nameErr != nil || !errors.Is(err, errNoTransaction) {
		return nil, err
	}
	pending, listErr := c.PendingOf(ctx, names[0])
	if listErr != nil {
		return nil, listErr
	}
	if len(pending) == 0 {
		return nil, err
	}
	var all []*corev1.ConfigMap
	for _, t := range pending {
		cm, err := c.transaction(ctx, t.Name())
		if errors.Is(err, errNoTransaction) {
			continue // applied in the meantime
		}
		if err != nil {
			return nil, err
		}
		all = append(all, cm)
	}
	return all, nil
}

// errNoTransaction says that there is nothing of that name.
var errNoTransaction = errors.New("it may be applied by now: kubectl nodekeeper pending shows which there are")

// transaction returns what is in the transaction namespace by that name, full or short.
func (c *cluster) transaction(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	full := fullName(name)
	err := c.client.Get(ctx, types.NamespacedName{Namespace: c.TransactionNamespace, Name: full}, cm)
	if apierrors.IsNotFound(err) || full == record.RootCAName {
		return nil, fmt.Errorf("there is no transaction %q, and none of a node of that name: %w", name, errNoTransaction)
	}
	if err != nil {
		return nil, fmt.Errorf("reading transaction %q: %w", name, err)
	}
	return cm, nil
}

// touch changes a transaction so that the processors look at it anew, conditional on the one that was read.
func (c *cluster) touch(ctx context.Context, dry dryRun, cm *corev1.ConfigMap) error {
	if dry == dryRunClient {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             cm.UID,
		"resourceVersion": cm.ResourceVersion,
		"annotations":     map[string]string{retriedAtAnnotation: time.Now().UTC().Format(time.RFC3339Nano)},
		"labels":          map[string]*string{processor.MalformedLabel: nil},
	}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	err = dry.writer(c).Patch(ctx, cm.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err): // it is applied, which is what was wanted
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("transaction %s has changed since it was read: run this again", shortName(cm))
	case err != nil:
		return fmt.Errorf("changing transaction %s: %w", shortName(cm), err)
	}
	return nil
}

// describeRetry says what will come of it.
func describeRetry(cm *corev1.ConfigMap) string {
	if _, err := inspect.ParsePending(cm); err != nil {
		return fmt.Sprintf("looked at again; unless it is mended it is marked again: %v", err)
	}
	return "tried again"
}
