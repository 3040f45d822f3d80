package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
	"nodekeeper.dev/test/story"
)

// steps returns all steps, in order. Each starts from the state that the previous ones left.
func (d *demo) steps() []story.Step {
	return []story.Step{
		{Title: "Three shards join", Promise: "the three shards have equal shares of the table", Run: d.joinFirst},
		{Title: "Secrets are created", Promise: "every Secret has its shard in its first version, and gets its checksums there", Run: d.createSecrets},
		{Title: "A shard is killed", Promise: "the Secrets of the dead shard are at the others, and nothing else has moved", Run: d.killShard},
		{Title: "A shard joins", Promise: "the new shard has its share, and the others have only given that away", Run: d.joinShard},
		{Title: "A shard ends (SIGTERM)", Promise: "it gives all its Secrets away before it ends", Run: d.drainShard},
		{Title: "At the end", Promise: "no Secret was ever reconciled by two shards at once", Run: d.audit},
	}
}

func (d *demo) joinFirst(ctx context.Context) error {
	err := d.API.Create(ctx, &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: ringName}, Spec: v1alpha1.ClusterRingSpec{
		Shards: v1alpha1.Shards{Namespace: shardNamespace},
		Resources: []v1alpha1.Resource{{
			GroupResource:       v1alpha1.GroupResource{Resource: "secrets"},
			ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: objectNamespace}},
		Handover:          v1alpha1.Handover{Settle: &metav1.Duration{Duration: time.Second}},
	}})
	if err != nil {
		return err
	}
	d.Action(time.Now(), "user", "creates the ring "+ringName+": secrets, which control configmaps")
	shards := []string{"web-0", "web-1", "web-2"}
	for _, name := range shards {
		if err := d.startShard(name); err != nil {
			return err
		}
	}
	if err := d.untilSettled(ctx, shards...); err != nil {
		return err
	}
	d.Action(time.Now(), "ring", "three shards have slots; soon the API server applies the policies")
	var r *ringview.Ring
	err = d.untilRing(ctx, "policies assign new objects", func(now *ringview.Ring) bool {
		r = now
		return meta.IsStatusConditionTrue(r.Conditions, "AdmissionInstalled")
	})
	if err != nil {
		return err
	}
	d.Action(time.Now(), "ring", "AdmissionInstalled: new objects get their shard from the API server")
	for _, m := range r.Members {
		if m.Slots < 341 || m.Slots > 342 {
			return fmt.Errorf("%s has %d slots, not a third of 1,024", m.Name, m.Slots)
		}
	}
	return d.show(ctx)
}

func (d *demo) createSecrets(ctx context.Context) error {
	begin := time.Now()
	assigned, err := d.create(ctx)
	if err != nil {
		return err
	}
	d.Action(time.Now(), "user", fmt.Sprintf("creates %d Secrets in %s; %d had their shard in their first version", secrets, story.InSeconds(time.Since(begin)), assigned))
	if assigned != secrets {
		return fmt.Errorf("%d Secrets had no shard in their first version", secrets-assigned)
	}
	if err := d.untilChecksums(ctx); err != nil {
		return err
	}
	d.Action(time.Now(), "shards", "every Secret has its ConfigMap, at the same shard")
	d.start(context.WithoutCancel(ctx)) // it is stopped at the end
	d.Action(time.Now(), "user", "edits one of the Secrets every "+editPeriod.String()+" from now on")
	return d.show(ctx)
}

// during runs a change of the shards, and returns how many Secrets each shard had before and has
// afterwards.
func (d *demo) during(ctx context.Context, change func(before map[string]int) error) (before, after map[string]int, err error) {
	if before, err = d.counts(ctx); err != nil {
		return nil, nil, err
	}
	if err := change(before); err != nil {
		return nil, nil, err
	}
	after, err = d.counts(ctx)
	return before, after, err
}

func (d *demo) killShard(ctx context.Context) error {
	const victim = "web-1"
	begin := time.Now()
	before, after, err := d.during(ctx, func(before map[string]int) error {
		pid, err := d.kill(victim)
		if err != nil {
			return err
		}
		d.Action(begin, "demo", fmt.Sprintf("kill -9 %d: %s, which has %d Secrets", pid, victim, before[victim]))
		for _, states := range [][]string{{"expired", "uncertain", "dead"}, {"dead"}} { // a slow look may miss some
			var state string
			err := d.untilRing(ctx, victim+" is "+states[0], func(r *ringview.Ring) bool {
				for _, m := range r.Members {
					if m.Name == victim {
						state = m.State
					}
				}
				return slices.Contains(states, state)
			})
			if err != nil {
				return err
			}
			d.Action(time.Now(), "ring", fmt.Sprintf("%s is %s, %s after the kill", victim, state, story.InSeconds(time.Since(begin))))
		}
		return d.Until(ctx, func(ctx context.Context) error {
			has, err := d.counts(ctx)
			if err == nil && has[victim]+has[""] > 0 {
				err = fmt.Errorf("%s has %d Secrets, and %d have no shard", victim, has[victim], has[""])
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	d.Action(time.Now(), "ring", fmt.Sprintf("the last of its Secrets is at another shard, %s after the kill", story.InSeconds(time.Since(begin))))
	if after["web-0"] < before["web-0"] || after["web-2"] < before["web-2"] {
		return fmt.Errorf("shards that live have lost Secrets: %v before, %v after", before, after)
	}
	return d.show(ctx)
}

func (d *demo) joinShard(ctx context.Context) error {
	begin := time.Now()
	before, after, err := d.during(ctx, func(map[string]int) error {
		if err := d.startShard("web-3"); err != nil {
			return err
		}
		return d.untilSettled(ctx, "web-0", "web-2", "web-3")
	})
	if err != nil {
		return err
	}
	d.Action(time.Now(), "ring", fmt.Sprintf("%d Secrets were handed over to web-3, %s after it started", after["web-3"], story.InSeconds(time.Since(begin))))
	if after["web-3"] == 0 || after["web-0"] > before["web-0"] || after["web-2"] > before["web-2"] {
		return fmt.Errorf("the new shard has none, or the others have exchanged Secrets: %v before, %v after", before, after)
	}
	return d.show(ctx)
}

func (d *demo) drainShard(ctx context.Context) error {
	const leaver = "web-0"
	begin := time.Now()
	_, after, err := d.during(ctx, func(before map[string]int) error {
		d.Action(begin, "demo", fmt.Sprintf("SIGTERM for %s, which has %d Secrets", leaver, before[leaver]))
		code, err := d.Terminate(leaver)
		if err == nil && code != 0 {
			err = fmt.Errorf("%s ended with exit code %d", leaver, code)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.Action(time.Now(), leaver, fmt.Sprintf("has ended after %s, and has %d Secrets", story.InSeconds(time.Since(begin)), after[leaver]))
	if after[leaver] > 0 {
		return fmt.Errorf("%s had %d Secrets left", leaver, after[leaver])
	}
	if err := d.untilSettled(ctx, "web-2", "web-3"); err != nil {
		return err
	}
	return d.show(ctx)
}

func (d *demo) audit(ctx context.Context) error {
	d.stop()
	if err := d.untilChecksums(ctx); err != nil {
		return err
	}
	for _, p := range d.Running() { // so that no line is half written, and all work has ended
		if strings.HasPrefix(p.Identity, "web-") {
			if _, err := d.kill(p.Identity); err != nil {
				return err
			}
		}
	}
	file, err := os.Open(d.journal)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	t, err := assess(file, d.killed)
	if err != nil {
		return err
	}
	d.Action(time.Now(), "journals", fmt.Sprintf("%d reconciles of %d Secrets after %d edits; %d Secrets were reconciled by several shards, one after the other",
		t.reconciles, t.objects, d.edits.Load(), t.handed))
	if t.objects != secrets || t.handed == 0 {
		return errors.New("the journals do not have what has happened")
	}
	return nil
}
