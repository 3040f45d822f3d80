package byhand

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
)

var (
	// ErrNoTransaction says that there is nothing of that name.
	ErrNoTransaction = errors.New("it may be applied by now: kubectl nodekeeper pending shows which there are")

	errTransactionChanged = errors.New("has changed since it was read: run this again")
)

// ReadTransaction returns what is in the transaction namespace by that name, full or short.
func ReadTransaction(ctx context.Context, c *inspect.Cluster, name string) (*corev1.ConfigMap, error) {
	cm, err := c.Queue().Read(ctx, FullName(name))
	if err == nil && cm == nil {
		err = fmt.Errorf("there is no transaction %q, and none of a node of that name: %w", name, ErrNoTransaction)
	}
	return cm, err
}

// ReadRetried returns what an argument names: one transaction, or all of a node, unless node is "".
func ReadRetried(ctx context.Context, c *inspect.Cluster, arg, node string) ([]*corev1.ConfigMap, error) {
	cm, err := ReadTransaction(ctx, c, arg)
	if err == nil {
		return []*corev1.ConfigMap{cm}, nil
	}
	if node == "" || !errors.Is(err, ErrNoTransaction) {
		return nil, err
	}
	pending, listErr := c.Queue().Of(ctx, node)
	if listErr != nil {
		return nil, listErr
	}
	if len(pending) == 0 {
		return nil, err
	}
	var all []*corev1.ConfigMap
	for _, t := range pending {
		cm, err := c.Queue().Read(ctx, t.Name())
		if err != nil {
			return nil, err
		}
		if cm != nil { // else it is applied by now
			all = append(all, cm)
		}
	}
	return all, nil
}

// Retry changes a transaction so that the processors take it up again, conditional on the one that
// was read.
func Retry(ctx context.Context, c *inspect.Cluster, dry DryRun, cm *corev1.ConfigMap) error {
	if dry == DryRunClient {
		return nil
	}
	q := &queue.Queue{Client: dry.Writer(c.Client), Namespace: c.TransactionNamespace}
	return explained(q.Touch(ctx, cm, time.Now()), cm)
}

// Discard removes what was read from the queue, by its uid: another one that has its name since
// stays.
func Discard(ctx context.Context, c *inspect.Cluster, dry DryRun, cm *corev1.ConfigMap) error {
	if dry == DryRunClient {
		return nil
	}
	q := &queue.Queue{Client: dry.Writer(c.Client), Namespace: c.TransactionNamespace}
	return explained(q.Discard(ctx, cm), cm)
}

func explained(err error, cm *corev1.ConfigMap) error {
	switch {
	case errors.Is(err, queue.ErrStale):
		return fmt.Errorf("transaction %s %w", ShortName(cm), errTransactionChanged)
	case err != nil:
		return fmt.Errorf("transaction %s: %w", ShortName(cm), err)
	}
	return nil
}

// DescribeDiscard says what is lost with a ConfigMap in the queue, by the policy of each node.
func DescribeDiscard(ctx context.Context, c *inspect.Cluster, cm *corev1.ConfigMap, policy func(node string) labels.Policy) (string, error) {
	t, reason := queue.Parse(cm)
	if reason != nil {
		return reason.Error(), nil //nolint:nilerr // that is the answer
	}
	n, err := c.Node(ctx, t.Node)
	if err != nil {
		return "", err
	}
	decisions := n.Forecast(policy(n.Name))
	for i, pending := range n.Pending {
		switch {
		case pending.ObjectUID != t.ObjectUID:
		case i >= len(decisions):
			return "what it does is not known, as the record of the node cannot be read", nil
		case decisions[i].Action == preserve.Nothing:
			return "it would do nothing: " + decisions[i].Reason, nil
		default:
			written := decisions[i].Labels
			if decisions[i].Action == preserve.Save {
				written = decisions[i].Record.Labels
			}
			return fmt.Sprintf("it would %s %s: %s", decisions[i].Action, amount.Of(len(written), "label"), decisions[i].Reason), nil
		}
	}
	return "it is applied just now", nil
}

// DescribeRetry says what will come of it.
func DescribeRetry(cm *corev1.ConfigMap) string {
	if _, err := queue.Parse(cm); err != nil {
		return fmt.Sprintf("retried; if it is still malformed, it is quarantined again: %v", err)
	}
	return "tried again"
}
