package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// bareClient performs the minimum of writes that the design needs when nodes are deleted and
// recreated: per node it creates and deletes two transactions, saves one record, notes a restore in
// it, and patches the Node once. It reads and watches nothing, as it knows its own writes, and
// takes no locks. It writes the same objects as nodekeeper.
type bareClient struct {
	*cluster

	// writers limits writes to the number of all watchers' writers, and workers to a few more than the
	// processors have.
	writers, workers *semaphore.Weighted
	records          map[string]*bareRecord
}

// bareRecord is the record of one node.
type bareRecord struct {
	record.Record

	object  *corev1.ConfigMap
	isSaved chan struct{} // closed once the labels of the deleted node are saved
}

func newBareClient(c *cluster, replicas int) *bareClient {
	limit := int64(hands * replicas)
	return &bareClient{
		cluster: c, writers: semaphore.NewWeighted(limit), workers: semaphore.NewWeighted(limit), records: map[string]*bareRecord{},
	}
}

// found creates the first records.
func (b *bareClient) found(ctx context.Context) error {
	for name := range b.fleet {
		b.records[name] = &bareRecord{isSaved: make(chan struct{})}
	}
	return b.each(ctx, b.members(), func(ctx context.Context, m *member) error {
		r := b.records[m.name]
		r.Record = record.Record{
			Node: m.name, Labels: b.setup.saved(m), Revision: revision.Of(m.resourceVersion), Source: m.uid, SavedAt: time.Now(),
			Identity: nameOnly(m.uid),
		}
		r.object = r.ConfigMap(metadataNamespace)
		if err := b.api.Create(ctx, r.object); err != nil {
			return fmt.Errorf("founding the record of node %s: %w", m.name, err)
		}
		return nil
	})
}

// nameOnly is the identity that a processor notes for a machine without one. If it is missing, and
// a Node is deleted before a processor has read it, the machine of its restricted labels is
// unknown, and they are withheld.
func nameOnly(uid types.UID) record.Identity { return record.Identity{UID: uid} }

// cycle deletes and recreates every node, and returns after the last write.
func (b *bareClient) cycle(ctx context.Context) error {
	rest, restCtx := errgroup.WithContext(ctx)
	err := b.each(ctx, b.members(), func(ctx context.Context, m *member) error {
		deleted := b.transaction(txn.Deleted, m, m.labels)
		if err := b.delete(ctx, m); err != nil {
			return err
		}
		rest.Go(func() error { return b.save(restCtx, deleted) })
		return nil
	})
	if err == nil {
		err = b.each(ctx, b.members(), func(ctx context.Context, m *member) error {
			if err := b.register(ctx, m); err != nil {
				return err
			}
			rest.Go(func() error { return b.restore(restCtx, m) })
			return nil
		})
	}
	return errors.Join(rest.Wait(), err)
}

func (b *bareClient) transaction(typ txn.Type, m *member, own map[string]string) txn.Transaction {
	return txn.Transaction{
		Type: typ, Node: m.name, UID: m.uid, Revision: revision.Of(m.resourceVersion), Labels: own,
		ObservedAt: time.Now(), FoundsRecord: typ == txn.Added,
	}
}

// save performs the writes for a node that was deleted.
func (b *bareClient) save(ctx context.Context, t txn.Transaction) error {
	defer close(b.records[t.Node].isSaved)
	return b.apply(ctx, t, func() error {
		r := b.records[t.Node]
		r.Record = record.Record{Node: t.Node, Labels: t.Labels, Revision: t.Revision, Source: t.UID, SavedAt: time.Now(), Identity: nameOnly(t.UID)}
		return b.write(ctx, r)
	})
}

// restore performs the writes for a node that was recreated.
func (b *bareClient) restore(ctx context.Context, m *member) error {
	t := b.transaction(txn.Added, m, kubelets(m.name))
	return b.apply(ctx, t, func() error {
		r := b.records[m.name]
		if err := b.patch(ctx, m, r.Revision.String()); err != nil {
			return err
		}
		r.Record = preserve.Noted(r.Record, nodeview.Node{}, nodeview.Node{
			UID: m.uid, Revision: revision.Of(m.resourceVersion), Labels: r.Labels, IsWhole: true,
		}, labels.MachineBound{})
		return b.write(ctx, r)
	})
}

// apply stores a transaction, and removes it once its effect is stored.
func (b *bareClient) apply(ctx context.Context, t txn.Transaction, effect func() error) error {
	cm := t.ConfigMap(transactionNamespace)
	if err := under(ctx, b.writers, func() error { return b.api.Create(ctx, cm) }); err != nil {
		return fmt.Errorf("storing a transaction of node %s: %w", t.Node, err)
	}
	if t.Type == txn.Added {
		<-b.records[t.Node].isSaved
	}
	return under(ctx, b.workers, func() error {
		if err := effect(); err != nil {
			return err
		}
		return b.api.Delete(ctx, cm, client.Preconditions{UID: &cm.UID})
	})
}

func (b *bareClient) write(ctx context.Context, r *bareRecord) error {
	r.Write(r.object)
	if err := b.api.Update(ctx, r.object); err != nil {
		return fmt.Errorf("storing the record of node %s: %w", r.Node, err)
	}
	return nil
}

func (b *bareClient) patch(ctx context.Context, m *member, marker string) error {
	changes := map[string]string{labels.Marker: marker}
	own := kubelets(m.name)
	for key, value := range m.labels {
		if _, isThere := own[key]; !isThere {
			changes[key] = value
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.uid, "resourceVersion": m.resourceVersion, "labels": changes}})
	if err != nil {
		return err
	}
	n := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: m.name},
	}
	if err := b.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("restoring the labels of node %s: %w", m.name, err)
	}
	m.resourceVersion = n.ResourceVersion
	return nil
}

// under calls do while holding one unit of the semaphore.
func under(ctx context.Context, limit *semaphore.Weighted, do func() error) error {
	if err := limit.Acquire(ctx, 1); err != nil {
		return err
	}
	defer limit.Release(1)
	return do()
}
