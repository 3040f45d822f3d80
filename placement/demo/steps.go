package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/story"
)

const (
	// killBound is the time after a kill within which all is worked on again: the work moves after
	// twice the lease duration, and the rest is for a busy machine.
	killBound = 2*leaseDuration + 5*time.Second
	// endBound is the same after SIGTERM. It is shorter than any wait for a Lease.
	endBound = leaseDuration
)

// steps returns all steps, in order. Each starts from the state that the previous ones left.
func (d *demo) steps() []story.Step {
	return []story.Step{
		{Title: "Three agents join, and a Queue with six partitions is created", Promise: "each pod works on two partitions, and the Queue is Ready", Run: d.create},
		{Title: "An agent is killed", Promise: "its programs died with it, and its partitions, no others, moved in time", Run: d.kill},
		{Title: "An agent is asked to end", Promise: "its partitions moved without a wait, and it ended with exit code 0", Run: d.terminate},
		{Title: "The journal", Promise: "no partition was ever worked on by two pods, and epochs grew", Run: d.audit},
	}
}

func (d *demo) create(ctx context.Context) error {
	for _, pod := range []string{"worker-0", "worker-1", "worker-2"} {
		if err := d.startAgent(pod); err != nil {
			return err
		}
	}
	// So that the work is spread over all three.
	err := d.Until(ctx, func(ctx context.Context) error {
		leases := &unstructured.UnstructuredList{}
		leases.SetAPIVersion("coordination.k8s.io/v1")
		leases.SetKind("LeaseList")
		if err := d.API.List(ctx, leases, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(leases.Items) < 3 {
			return fmt.Errorf("%d agents have joined", len(leases.Items))
		}
		return nil
	})
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := d.API.Create(ctx, queues.New(namespace, queue, partitions)); err != nil {
		return err
	}
	owners, err := d.untilWorked(ctx, "worker-0", "worker-1", "worker-2")
	if err != nil {
		return err
	}
	d.Action(time.Now(), "queue", fmt.Sprintf("is Ready, %s after it was created", story.InMillis(time.Since(begin))))
	for pod, indexes := range byPod(owners) {
		if len(indexes) != partitions/3 {
			return fmt.Errorf("%s works on %v", pod, indexes)
		}
	}
	return d.show(ctx)
}

func byPod(owners map[int32]string) map[string][]int32 {
	all := map[string][]int32{}
	for _, index := range slices.Sorted(maps.Keys(owners)) {
		all[owners[index]] = append(all[owners[index]], index)
	}
	return all
}

func (d *demo) kill(ctx context.Context) error {
	const victim = "worker-1"
	before, err := d.owners()
	if err != nil {
		return err
	}
	all, err := journal.Read(d.dir)
	if err != nil {
		return err
	}
	begin := time.Now()
	pid, err := d.Kill(victim)
	if err != nil {
		return err
	}
	d.Action(begin, "demo", fmt.Sprintf("kill -9 %d: %s, which works on %v", pid, victim, byPod(before)[victim]))
	err = d.Until(ctx, func(context.Context) error {
		for _, e := range all {
			if e.Pod == victim && !errors.Is(syscall.Kill(e.PID, 0), syscall.ESRCH) {
				return fmt.Errorf("process %d still runs", e.PID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.Action(time.Now(), "demo", fmt.Sprintf("its programs are gone, %s after the kill", story.InMillis(time.Since(begin))))
	after, err := d.untilWorked(ctx, "worker-0", "worker-2")
	if err != nil {
		return err
	}
	return errors.Join(d.moved(begin, killBound, victim, before, after), d.show(ctx))
}

func (d *demo) terminate(ctx context.Context) error {
	const leaver = "worker-0"
	before, err := d.owners()
	if err != nil {
		return err
	}
	begin := time.Now()
	d.Action(begin, "demo", fmt.Sprintf("SIGTERM for %s, which works on %v", leaver, byPod(before)[leaver]))
	code, err := d.Terminate(leaver)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s ended with exit code %d", leaver, code)
	}
	if err != nil {
		return err
	}
	after, err := d.untilWorked(ctx, "worker-2")
	if err != nil {
		return err
	}
	return errors.Join(d.moved(begin, endBound, leaver, before, after), d.show(ctx))
}

// moved returns an error unless exactly the partitions of one pod have moved, in time.
func (d *demo) moved(begin time.Time, bound time.Duration, from string, before, after map[int32]string) error {
	took := time.Since(begin)
	d.Action(time.Now(), "queue", fmt.Sprintf("is Ready, %s after that; %v moved", story.InSeconds(took), byPod(before)[from]))
	for index, pod := range before {
		if pod != from && after[index] != pod {
			return fmt.Errorf("partition %d moved from %s, which lives", index, pod)
		}
	}
	if took > bound {
		return fmt.Errorf("it took %s, and not %s at most", took, bound)
	}
	return nil
}

func (d *demo) audit(context.Context) error {
	all, err := journal.Read(d.dir)
	if err != nil {
		return err
	}
	starts := 0
	for _, e := range all {
		if e.Event == journal.Start {
			starts++
		}
	}
	d.Action(time.Now(), "journal", fmt.Sprintf("%d starts of %d partitions on 3 pods", starts, partitions))
	if starts < partitions+2 {
		return errors.New("the journal does not have what has happened")
	}
	return journal.Check(all)
}

// isReady returns an error unless the Queue is Ready.
func (d *demo) isReady(ctx context.Context) error {
	q := queues.New(namespace, queue, 0)
	if err := d.API.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(q.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" && c["status"] == "True" && c["reason"] == "Ready" && acknowledged(conditions) {
			return nil
		}
	}
	return fmt.Errorf("%w: %v", errNotReady, conditions)
}

// acknowledged reports whether the condition Acknowledged is True. Ready alone is held for a moment
// while work moves.
func acknowledged(conditions []any) bool {
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Acknowledged" {
			return c["status"] == "True"
		}
	}
	return false
}

// show prints the Queue as kubectl get does, and who works on what.
func (d *demo) show(ctx context.Context) error {
	q := queues.New(namespace, queue, 0)
	if err := d.API.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
		return err
	}
	owners, err := d.owners()
	if err != nil {
		return err
	}
	wanted, _, _ := unstructured.NestedInt64(q.Object, "spec", "partitions")
	ready, _, _ := unstructured.NestedInt64(q.Object, "status", "readyVReplicas")
	lines := []string{fmt.Sprintf("%-10s %7s %6s", "NAME", "WANTED", "READY"), fmt.Sprintf("%-10s %7d %6d", queue, wanted, ready)}
	pods := byPod(owners)
	for _, pod := range slices.Sorted(maps.Keys(pods)) {
		lines = append(lines, fmt.Sprintf("%-10s %s", pod, strings.Trim(fmt.Sprint(pods[pod]), "[]")))
	}
	d.Action(time.Now(), "table", lines[0], lines[1:]...)
	return nil
}
