package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/internal/ringview"
)

// shown are the Secrets whose owners are printed each time.
var shown = []int{1, 2, 3}

// counts returns how many Secrets each shard has; those that no shard has count for "".
func (s *stage) counts(ctx context.Context) (map[string]int, error) {
	list := &corev1.SecretList{}
	if err := s.api.List(ctx, list, client.InNamespace(objectNamespace)); err != nil {
		return nil, err
	}
	all := map[string]int{}
	for _, secret := range list.Items {
		all[secret.Labels[prefix.ShardLabel(ringName)]]++
	}
	return all, nil
}

// show prints the shards with their shares, how many Secrets each has, and who has some of them and why.
func (s *stage) show(ctx context.Context) error {
	r, err := s.view.Ring(ctx, ringName)
	if err != nil {
		return err
	}
	has, err := s.counts(ctx)
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("%-8s %-10s %5s %7s %8s", "SHARD", "STATE", "SLOTS", "SHARE", "SECRETS")}
	for _, m := range r.Members {
		lines = append(lines, fmt.Sprintf("%-8s %-10s %5d %6.1f%% %8d", m.Name, m.State, m.Slots, m.Share, has[m.Name]))
	}
	s.out.Say(time.Now(), "table", fmt.Sprintf("generation %d, %d Secrets move, %d wait for a shard", r.Table, r.Moving, has[""]), lines...)
	if len(has) == 0 {
		return nil
	}
	return s.showOwners(ctx)
}

func (s *stage) showOwners(ctx context.Context) error {
	mapping, err := s.api.RESTMapper().RESTMapping(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind())
	if err != nil {
		return err
	}
	var lines []string
	for _, i := range shown {
		_, rings, err := s.view.Owners(ctx, ringName, mapping, objectNamespace, secretName(i))
		if err != nil {
			return err
		}
		lines = append(lines, describeOwner(secretName(i), rings[0]))
	}
	s.out.Say(time.Now(), "owners", lines[0], lines[1:]...)
	return nil
}

func describeOwner(name string, o ringview.Ownership) string {
	owner := o.Owner
	if owner == "" {
		owner = "nobody"
	}
	return fmt.Sprintf("%s is %s to %s: %s", name, o.State, owner, o.Why)
}
