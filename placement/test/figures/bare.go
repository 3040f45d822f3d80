package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/queues"
)

// bareNamespace has the objects of the bare client.
const bareNamespace = "bench-bare"

// bare is a client that writes what placement has written in the end, and as little as possible: it
// decides nothing, reads nothing and waits for no other program. For each pod, it creates the
// contract as it is in the end, and acknowledges it; for each Queue, it writes the decision, and
// then the conditions.
type bare struct {
	client client.Client
	// queues has the status that placement has written, and written the Queues of the bare client.
	queues  []unstructured.Unstructured
	written []*unstructured.Unstructured
	cms     []corev1.ConfigMap
	leases  []coordinationv1.Lease
	rounds  int // of updates of one contract
}

// newBare copies what placement has written. The Queues and the Leases are there before.
func (b *bench) newBare(ctx context.Context) (*bare, error) {
	r := &bare{client: b.client}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(queues.Kind)
	var cms corev1.ConfigMapList
	var leases coordinationv1.LeaseList
	of := []client.ListOption{client.InNamespace(namespace), client.HasLabels{contract.PoolLabel}}
	if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	if err := b.client.List(ctx, &cms, of...); err != nil {
		return nil, err
	}
	if err := b.client.List(ctx, &leases, of...); err != nil {
		return nil, err
	}
	r.queues, r.cms, r.leases = list.Items, cms.Items, leases.Items
	r.written = make([]*unstructured.Unstructured, len(r.queues))
	err := each(ctx, len(r.queues), func(ctx context.Context, i int) error {
		r.written[i] = queues.New(bareNamespace, r.queues[i].GetName(), int64(b.partitions))
		return b.client.Create(ctx, r.written[i])
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, len(r.leases), func(ctx context.Context, i int) error {
		l := &r.leases[i]
		l.ObjectMeta = metav1.ObjectMeta{Namespace: bareNamespace, Name: l.Name, Labels: l.Labels, Annotations: l.Annotations}
		return b.client.Create(ctx, l)
	})
	return r, err
}

// run writes, and returns how long that takes and the number of writes.
func (r *bare) run(ctx context.Context) (took time.Duration, writes int, err error) {
	began := time.Now()
	steps := []struct {
		n  int
		do func(ctx context.Context, i int) error
	}{
		{len(r.queues), func(ctx context.Context, i int) error { return r.writeStatus(ctx, i, false) }},
		{len(r.cms), func(ctx context.Context, i int) error {
			cm := &r.cms[i]
			cm.ObjectMeta = metav1.ObjectMeta{Namespace: bareNamespace, Name: cm.Name, Labels: cm.Labels}
			return r.client.Create(ctx, cm)
		}},
		{len(r.leases), r.writeLease},
		{len(r.queues), func(ctx context.Context, i int) error { return r.writeStatus(ctx, i, true) }},
	}
	for _, s := range steps {
		if err := each(ctx, s.n, s.do); err != nil {
			return 0, 0, fmt.Errorf("writing as the bare client: %w", err)
		}
		writes += s.n
	}
	return time.Since(began), writes, nil
}

// chain writes some Leases, then some statuses, and then some contracts, and returns how long that
// takes: without them, work cannot move.
func (r *bare) chain(ctx context.Context, leases, statuses, contracts int) (time.Duration, error) {
	began := time.Now()
	if err := each(ctx, leases, r.writeLease); err != nil {
		return 0, err
	}
	if err := each(ctx, statuses, func(ctx context.Context, i int) error { return r.writeStatus(ctx, i, r.rounds%2 == 0) }); err != nil {
		return 0, err
	}
	r.rounds++
	err := each(ctx, min(contracts, len(r.cms)), func(ctx context.Context, i int) error {
		r.cms[i].Annotations = map[string]string{"round": strconv.Itoa(r.rounds)}
		return r.client.Update(ctx, &r.cms[i])
	})
	return time.Since(began), err
}

func (r *bare) writeLease(ctx context.Context, i int) error {
	r.leases[i].Spec.RenewTime = new(metav1.NowMicro())
	return r.client.Update(ctx, &r.leases[i])
}

// writeStatus writes the status of a Queue, with or without its conditions.
func (r *bare) writeStatus(ctx context.Context, i int, isWhole bool) error {
	status, _, err := unstructured.NestedMap(r.queues[i].Object, "status")
	if err != nil {
		return err
	}
	if !isWhole {
		delete(status, "conditions")
		delete(status, "readyVReplicas")
	}
	if err := unstructured.SetNestedMap(r.written[i].Object, status, "status"); err != nil {
		return err
	}
	return r.client.Status().Update(ctx, r.written[i])
}

// clean deletes what the bare client has.
func (r *bare) clean(ctx context.Context) error {
	for _, all := range []client.Object{newKind(), &corev1.ConfigMap{}, &coordinationv1.Lease{}} {
		if err := r.client.DeleteAllOf(ctx, all, client.InNamespace(bareNamespace)); err != nil {
			return err
		}
	}
	return nil
}

func newKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(queues.Kind)
	return u
}
