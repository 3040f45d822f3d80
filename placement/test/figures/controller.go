package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/programs"
)

// isLeading reports whether the controller has made a pass.
func (b *bench) isLeading(ctx context.Context) bool {
	s, err := b.scrape(ctx)
	return err == nil && s["placement_pass_seconds_count"] > 0
}

// scrape returns the metrics of the controller.
func (b *bench) scrape(ctx context.Context) (metrics.Samples, error) {
	for line := range strings.Lines(b.controller.Output()) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "Serving metrics" {
			return metrics.Scrape(ctx, entry.Address)
		}
	}
	return nil, errors.New("the controller has not logged the address of its metrics")
}

// passes measures passes that find nothing to do.
func (b *bench) passes(ctx context.Context) error {
	if err := b.rest(ctx); err != nil {
		return err
	}
	before, err := b.scrape(ctx)
	if err != nil {
		return err
	}
	const most = 20
	for i := range most {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/pass":"%d"}}}`, i)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.pods[0].name}}
		if err := b.client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond): // longer than a pass and the pause after it
		}
	}
	after, err := b.scrape(ctx)
	if err != nil {
		return err
	}
	count := after["placement_pass_seconds_count"] - before["placement_pass_seconds_count"]
	sum := after["placement_pass_seconds_sum"] - before["placement_pass_seconds_sum"]
	b.print(fmt.Sprintf("a pass, %d vreplicas on %d pods, mean of %.0f", b.clock.works(""), b.agents, count), "≤ 100 ms", "%.0f ms", 1000*sum/count)
	return nil
}

// deleteAll deletes all Queues.
func (b *bench) deleteAll(ctx context.Context) error {
	before, err := b.requests(ctx)
	if err != nil {
		return err
	}
	if err := b.deleteQueues(ctx, b.resources); err != nil {
		return err
	}
	if err := b.until(ctx, "all work has stopped", func() bool { return b.clock.works("") == 0 && b.tally.queues() == 0 }); err != nil {
		return err
	}
	if err := b.rest(ctx); err != nil {
		return err
	}
	after, err := b.requests(ctx)
	if err != nil {
		return err
	}
	all := after.since(before)
	b.print(fmt.Sprintf("all %d deleted: GETs", b.resources), "≤ 1,000", "%d (%s)", all["GET queues"]+all["GET configmaps"], all)
	return nil
}

// memory measures the memory of the controller with many Queues, as they come and as they are there
// when it starts, and that of an agent without programs.
func (b *bench) memory(ctx context.Context) error {
	if err := b.agentMemory(ctx); err != nil || b.many == 0 {
		return err
	}
	if err := b.replaceController(ctx, ""); err != nil {
		return err
	}
	if err := b.createQueues(ctx, b.many, 1); err != nil {
		return err
	}
	if err := b.rest(ctx); err != nil {
		return err
	}
	coming, err := programs.UsageOf(b.controller.PID())
	if err != nil {
		return err
	}
	if err := errors.Join(b.replaceController(ctx, ""), b.rest(ctx)); err != nil {
		return err
	}
	there, err := programs.UsageOf(b.controller.PID())
	if err != nil {
		return err
	}
	b.print(fmt.Sprintf("memory of the controller at its peak, with %d Queues: that are created; that a new leader finds", b.many), "≤ 64 MiB", "%.0f; %.0f MiB", coming.PeakMiB(), there.PeakMiB())
	return b.passes(ctx)
}

// agentMemory measures an agent with its guard, in a pool of its own.
func (b *bench) agentMemory(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone"}}
	p, err := programs.Launch(nil, "placement", "agent", "agent", "--kubeconfig="+b.plane.Kubeconfig, "--namespace="+namespace,
		"--pool=alone", "--pod="+lease.Name, "--pod-uid="+string(uuid.NewUUID()), "--exec", "--", "true")
	if err != nil {
		return err
	}
	renewed := func() bool {
		return b.client.Get(ctx, client.ObjectKeyFromObject(lease), lease) == nil && lease.Spec.RenewTime.Sub(lease.Spec.AcquireTime.Time) > duration
	}
	if err := b.until(ctx, "the agent has renewed its Lease", renewed); err != nil {
		return err
	}
	usage, err := programs.UsageOf(p.PID())
	if err != nil {
		return err
	}
	b.print("memory of an agent without programs, at its peak", "≤ 20 MiB", "%.0f MiB", usage.PeakMiB())
	return p.Stop(stopTimeout)
}
