package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
	"nodekeeper.dev/test/story"
)

// steps returns all steps, in order. Each starts from the state that the previous ones left.
func (s *stage) steps() []story.Step {
	return []story.Step{
		{Title: "Three shards join", Promise: "the three shards have equal shares of the table", Run: s.joinFirst},
		{Title: "Secrets are created", Promise: "every Secret has its shard in its first version, and gets its checksums there", Run: s.createSecrets},
		{Title: "A shard is killed", Promise: "the Secrets of the dead shard are at the others, and nothing else has moved", Run: s.killShard},
		{Title: "A shard joins", Promise: "the new shard has its share, and the others have only given that away", Run: s.joinShard},
		{Title: "A shard ends (SIGTERM)", Promise: "it gives all its Secrets away before it ends", Run: s.drainShard},
		{Title: "At the end", Promise: "no Secret was ever reconciled by two shards at once", Run: s.audit},
	}
}

func (s *stage) joinFirst(ctx context.Context) error {
	err := s.api.Create(ctx, &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: ringName}, Spec: v1alpha1.ClusterRingSpec{
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
	s.out.Say(time.Now(), "user", "creates the ring "+ringName+": secrets, which control configmaps")
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		if err := s.startShard(name); err != nil {
			return err
		}
	}
	if err := s.untilRing(ctx, "three shards have slots", func(r *ringview.Ring) bool { return isSettled(r, "web-0", "web-1", "web-2") }); err != nil {
		return err
	}
	s.out.Say(time.Now(), "ring", "three shards have slots; the API server needs up to 30 s until it applies the policies")
	if err := s.untilRing(ctx, "policies assign new objects", func(r *ringview.Ring) bool { return isTrue(r, "AdmissionInstalled") }); err != nil {
		return err
	}
	s.out.Say(time.Now(), "ring", "AdmissionInstalled: new objects get their shard from the API server")
	r, err := s.view.Ring(ctx, ringName)
	if err != nil {
		return err
	}
	for _, m := range r.Members {
		if m.Slots < 341 || m.Slots > 342 {
			return fmt.Errorf("%s has %d slots, not a third of 1,024", m.Name, m.Slots)
		}
	}
	return s.show(ctx)
}

func (s *stage) createSecrets(ctx context.Context) error {
	begin := time.Now()
	assigned, err := s.user.create(ctx)
	if err != nil {
		return err
	}
	s.out.Say(time.Now(), "user", fmt.Sprintf("creates %d Secrets in %s; %d had their shard in their first version", secrets, story.InSeconds(time.Since(begin)), assigned))
	if assigned != secrets {
		return fmt.Errorf("%d Secrets had no shard in their first version", secrets-assigned)
	}
	if err := s.untilChecksums(ctx); err != nil {
		return err
	}
	s.out.Say(time.Now(), "shards", "every Secret has its ConfigMap, at the same shard")
	s.user.start(context.WithoutCancel(ctx)) // it is stopped when the stage closes
	s.out.Say(time.Now(), "user", "edits one of the Secrets every "+editPeriod.String()+" from now on")
	return s.show(ctx)
}

// untilChecksums waits until each Secret has its ConfigMap, at the same shard.
func (s *stage) untilChecksums(ctx context.Context) error {
	return until(ctx, "every Secret has its ConfigMap", func(ctx context.Context) (bool, error) {
		owners, stored := &corev1.SecretList{}, &corev1.ConfigMapList{}
		err := errors.Join(s.api.List(ctx, owners, client.InNamespace(objectNamespace)), s.api.List(ctx, stored, client.InNamespace(objectNamespace)))
		if err != nil {
			return false, err
		}
		at := map[string]string{}
		for _, cm := range stored.Items {
			at[cm.Name] = cm.Labels[prefix.ShardLabel(ringName)]
		}
		for _, secret := range owners.Items {
			shard, has := at["checksums-"+secret.Name]
			if !has || shard != secret.Labels[prefix.ShardLabel(ringName)] {
				return false, nil
			}
		}
		return len(owners.Items) == secrets, nil
	})
}

func (s *stage) killShard(ctx context.Context) error {
	const victim = "web-1"
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	pid, err := s.crew.Kill(victim)
	if err != nil {
		return err
	}
	if s.killed[victim], err = monotonic(); err != nil {
		return err
	}
	s.out.Say(begin, "demo", fmt.Sprintf("kill -9 %d: %s, which has %d Secrets", pid, victim, before[victim]))
	for _, states := range [][]string{{"expired", "uncertain", "dead"}, {"dead"}} { // a slow look may miss some
		var state string
		err := s.untilRing(ctx, victim+" is "+states[0], func(r *ringview.Ring) bool {
			state = stateOf(r, victim)
			return slices.Contains(states, state)
		})
		if err != nil {
			return err
		}
		s.out.Say(time.Now(), "ring", fmt.Sprintf("%s is %s, %s after the kill", victim, state, story.InSeconds(time.Since(begin))))
	}
	if err := s.untilAway(ctx, victim); err != nil {
		return err
	}
	s.out.Say(time.Now(), "ring", fmt.Sprintf("the last of its Secrets is at another shard, %s after the kill", story.InSeconds(time.Since(begin))))
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	if after["web-0"] < before["web-0"] || after["web-2"] < before["web-2"] {
		return fmt.Errorf("shards that live have lost Secrets: %v before, %v after", before, after)
	}
	return s.show(ctx)
}

// untilAway waits until a shard has no Secret, and none is without a shard.
func (s *stage) untilAway(ctx context.Context, shard string) error {
	return until(ctx, "every Secret of "+shard+" is at another shard", func(ctx context.Context) (bool, error) {
		has, err := s.counts(ctx)
		return err == nil && has[shard] == 0 && has[""] == 0, err
	})
}

func (s *stage) joinShard(ctx context.Context) error {
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.startShard("web-3"); err != nil {
		return err
	}
	err = s.untilRing(ctx, "web-3 has its share", func(r *ringview.Ring) bool {
		return isSettled(r, "web-0", "web-2", "web-3") && s.isDone(ctx, "web-3")
	})
	if err != nil {
		return err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	s.out.Say(time.Now(), "ring", fmt.Sprintf("%d Secrets were handed over to web-3, %s after it started", after["web-3"], story.InSeconds(time.Since(begin))))
	if after["web-0"] > before["web-0"] || after["web-2"] > before["web-2"] {
		return fmt.Errorf("shards that were there before have exchanged Secrets: %v before, %v after", before, after)
	}
	return s.show(ctx)
}

// isDone reports whether no Secret is in a hand-over, and a shard has some.
func (s *stage) isDone(ctx context.Context, shard string) bool {
	draining := &corev1.SecretList{}
	if err := s.api.List(ctx, draining, client.InNamespace(objectNamespace), client.HasLabels{prefix.DrainLabel(ringName)}); err != nil {
		return false
	}
	has, err := s.counts(ctx)
	return err == nil && len(draining.Items) == 0 && has[""] == 0 && has[shard] > 0
}

func (s *stage) drainShard(ctx context.Context) error {
	const leaver = "web-0"
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	p, err := s.crew.Release(leaver)
	if err != nil {
		return err
	}
	begin := time.Now()
	s.out.Say(begin, "demo", fmt.Sprintf("kill -TERM %d: %s, which has %d Secrets", p.PID(), leaver, before[leaver]))
	if err := p.Stop(stopTimeout); err != nil {
		return err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	s.out.Say(time.Now(), leaver, fmt.Sprintf("has ended with exit code %d after %s, and has %d Secrets", p.ExitCode(), story.InSeconds(time.Since(begin)), after[leaver]))
	if p.ExitCode() != 0 || after[leaver] > 0 {
		return fmt.Errorf("%s ended with exit code %d, and had %d Secrets left", leaver, p.ExitCode(), after[leaver])
	}
	err = s.untilRing(ctx, "the others have all slots", func(r *ringview.Ring) bool { return isSettled(r, "web-2", "web-3") && s.isDone(ctx, "web-3") })
	if err != nil {
		return err
	}
	return s.show(ctx)
}

func (s *stage) audit(ctx context.Context) error {
	s.user.stop()
	if err := s.untilChecksums(ctx); err != nil {
		return err
	}
	for _, p := range s.crew.Running() { // so that no line is half written, and all work has ended
		if p.Name != "example-checksum" {
			continue
		}
		if _, err := s.crew.Kill(p.Identity); err != nil {
			return err
		}
		var err error
		if s.killed[p.Identity], err = monotonic(); err != nil {
			return err
		}
	}
	file, err := os.Open(s.journal)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	all, err := spansOf(file, s.killed)
	if err != nil {
		return err
	}
	n := 0
	for _, spans := range all {
		n += len(spans)
	}
	s.out.Say(time.Now(), "journals", fmt.Sprintf("%d reconciles of %d Secrets after %d edits; %d Secrets were reconciled by several shards, one after the other",
		n, len(all), s.user.edits.Load(), handed(all)))
	if len(all) != secrets || handed(all) == 0 {
		return errors.New("the journals do not have what has happened")
	}
	return overlaps(all)
}
