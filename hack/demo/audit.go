package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// lookAgain is the time between two looks at the queue.
const lookAgain = 50 * time.Millisecond

// audit reads everything from the API server, and not from what was seen, when there is no more to do.
func audit(ctx context.Context, s *stage) error {
	if err := s.awaitEmptyQueue(ctx); err != nil {
		return err
	}
	var list corev1.NodeList
	if err := s.api.List(ctx, &list); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	var saved corev1.ConfigMapList
	if err := s.api.List(ctx, &saved, client.InNamespace(metadataNamespace)); err != nil {
		return fmt.Errorf("listing the records: %w", err)
	}
	s.out.say(time.Now(), "demo", fmt.Sprintf("%d nodes, %d records, 0 transactions", len(list.Items), len(saved.Items)))
	if len(list.Items) != len(s.want) || len(saved.Items) != len(s.want) {
		return fmt.Errorf("there are to be %d nodes and as many records", len(s.want))
	}
	for i := range saved.Items {
		if err := holds(&saved.Items[i], s.want[saved.Items[i].Name]); err != nil {
			return err
		}
	}
	for i := range list.Items {
		n := &list.Items[i]
		if own, _ := labels.Split(n.Labels); !maps.Equal(own, s.want[n.Name]) {
			return fmt.Errorf("node %s has the labels %v, not %v", n.Name, own, s.want[n.Name])
		}
	}
	return nil
}

// awaitEmptyQueue asks the API server for the transactions until there are none.
func (s *stage) awaitEmptyQueue(ctx context.Context) error {
	count := 0
	err := wait.PollUntilContextTimeout(ctx, lookAgain, patience, true, func(ctx context.Context) (bool, error) {
		var list corev1.ConfigMapList
		if err := s.api.List(ctx, &list, client.InNamespace(transactionNamespace)); err != nil {
			return false, fmt.Errorf("listing the transactions: %w", err)
		}
		count = len(list.Items)
		return count == 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%w: %d transactions are in the queue", errPatience, count)
	}
	return err
}
