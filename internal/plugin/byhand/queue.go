package byhand

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/queue"
)

var (
	// ErrNoTransaction is returned for a name that is not in the queue.
	ErrNoTransaction = errors.New("it may have been applied: see kubectl nodekeeper pending")

	errTransactionChanged = errors.New("has changed since it was read: run this again")
)

// ReadTransaction returns the ConfigMap in the transaction namespace with this full or short name.
func ReadTransaction(ctx context.Context, c *inspect.Cluster, name string) (*corev1.ConfigMap, error) {
	cm, err := c.Queue().Read(ctx, FullName(name))
	if err == nil && cm == nil {
		err = fmt.Errorf("transaction %q not found, and no node of that name has any: %w", name, ErrNoTransaction)
	}
	return cm, err
}

// ReadRetried returns the transaction that an argument names, or else all transactions of a node
// unless node is empty.
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
		if cm != nil { // else it has been applied
			all = append(all, cm)
		}
	}
	return all, nil
}

// Retry touches a transaction so that the processors retry it, conditional on its resourceVersion.
func Retry(ctx context.Context, c *inspect.Cluster, dry DryRun, cm *corev1.ConfigMap) error {
	if dry == DryRunClient {
		return nil
	}
	q := &queue.Queue{Client: dry.Writer(c.Client), Namespace: c.TransactionNamespace}
	return explained(q.Touch(ctx, cm, c.Now()), cm)
}

// Discard removes a ConfigMap from the queue by its uid, so that a later one of the same name
// remains.
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

// DescribeDiscard describes the effect that discarding a ConfigMap in the queue prevents, under the
// policy of its node.
func DescribeDiscard(ctx context.Context, c *inspect.Cluster, cm *corev1.ConfigMap, policy func(node string) labels.Policy) (string, error) {
	t, reason := queue.Parse(cm)
	if reason != nil {
		return reason.Error(), nil //nolint:nilerr // the reason is the description
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

// DescribeRetry describes the effect of a retry.
func DescribeRetry(cm *corev1.ConfigMap) string {
	if _, err := queue.Parse(cm); err != nil {
		return fmt.Sprintf("retried; if it is still malformed, it is quarantined again: %v", err)
	}
	return "tried again"
}
