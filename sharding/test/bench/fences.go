package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// account is the service account of the shards of rings with a fence.
const account = "shards"

// fenced is a ring with a fence that has a namespace of its own, and a client for its only shard.
type fenced struct {
	name  string
	shard client.Client
}

// compareFences measures creates and updates in rings that differ only in their fence, and where
// there is no ring.
func (b *bench) compareFences(ctx context.Context) error {
	all := []fenced{{name: other, shard: b.client}}
	for _, fence := range []v1alpha1.Fence{v1alpha1.FenceNone, v1alpha1.FenceAudit, v1alpha1.FenceDeny} {
		one, err := b.fence(ctx, fence)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	names := make([]timed, 0, len(all))
	for _, one := range all {
		names = append(names, timed{"in-" + one.name, one.name})
	}
	if err := b.time(ctx, names...); err != nil {
		return err
	}
	return b.timeUpdates(ctx, all)
}

// fence creates a ring for a namespace of its own, and waits until its only shard can work.
func (b *bench) fence(ctx context.Context, fence v1alpha1.Fence) (fenced, error) {
	name := "fence-" + map[v1alpha1.Fence]string{v1alpha1.FenceNone: "none", v1alpha1.FenceAudit: "audit", v1alpha1.FenceDeny: "deny"}[fence]
	seconds, renewed, shard := int32(leaseSeconds), metav1.NowMicro(), "web-0"
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterRingSpec{
			Shards:            v1alpha1.Shards{Namespace: name, ServiceAccounts: []string{account}},
			Resources:         []v1alpha1.Resource{{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, ControlledResources: b.controlled()}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}},
			Fence:             fence,
		}},
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: shard, Labels: map[string]string{prefix.RingLabel(): name}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &shard, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
		},
	} {
		if err := b.client.Create(ctx, o); err != nil {
			return fenced{}, err
		}
	}
	cfg := rest.CopyConfig(b.plane.Config)
	cfg.QPS = -1
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + name + ":" + account, Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {shard}},
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return fenced{}, err
	}
	return fenced{name, c}, b.untilOf(ctx, name, func(s *v1alpha1.ClusterRingStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, "AdmissionInstalled") && meta.IsStatusConditionTrue(s.Conditions, place.FenceInstalled) && s.AvailableShards == 1
	})
}

// updates are updates of one kind.
type updates struct {
	what string
	by   client.Client
	ring string
	took []time.Duration
	cpu  time.Duration
}

// timeUpdates patches a Secret in each ring, as its shard and as an administrator, in short blocks
// that alternate. It prints the durations and the CPU time of the API server.
func (b *bench) timeUpdates(ctx context.Context, all []fenced) error {
	var kinds []*updates
	for _, one := range all {
		if err := b.client.Create(ctx, secret(one.name, "updated")); err != nil {
			return err
		}
		kinds = append(kinds,
			&updates{what: one.name + ", by an administrator", by: b.client, ring: one.name},
			&updates{what: one.name + ", by its shard", by: one.shard, ring: one.name})
	}
	for n := range b.creates / block {
		for _, u := range kinds {
			took, cpu, err := b.measureBlock(n, func(i int) error {
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, i))
				return u.by.Patch(ctx, secret(u.ring, "updated"), patch)
			})
			if err != nil {
				return err
			}
			u.took, u.cpu = append(u.took, took...), u.cpu+cpu
		}
	}
	for _, u := range kinds {
		b.printResult("update of a Secret in "+u.what+", p50, p90 and p99, ms; CPU of the API server, ms", "%.2f, %.2f, %.2f; %.2f",
			ms(quantile(u.took, 0.5)), ms(quantile(u.took, 0.9)), ms(quantile(u.took, 0.99)), ms(u.cpu)/float64(len(u.took)))
	}
	return nil
}
