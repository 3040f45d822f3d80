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

// pollPeriod is the time between two checks of the queue.
const pollPeriod = 50 * time.Millisecond

// audit waits until the queue is empty, then checks everything by live reads and not by the events seen.
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
	s.out.Say(time.Now(), "demo", fmt.Sprintf("%d nodes, %d records, 0 transactions", len(list.Items), len(saved.Items)))
	if len(list.Items) != len(s.want) || len(saved.Items) != len(s.want) {
		return fmt.Errorf("want %d nodes and as many records", len(s.want))
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
	err := wait.PollUntilContextTimeout(ctx, pollPeriod, patience, true, func(ctx context.Context) (bool, error) {
		var list corev1.ConfigMapList
		if err := s.api.List(ctx, &list, client.InNamespace(transactionNamespace)); err != nil {
			return false, fmt.Errorf("listing the transactions: %w", err)
		}
		count = len(list.Items)
		return count == 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%w: %d transactions are still in the queue", errTimeout, count)
	}
	return err
}
