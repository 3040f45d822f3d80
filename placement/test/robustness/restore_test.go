package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/test/sabotage"
)

// restore restores etcd from a backup that was made when the fault began, while all programs run.
type restore struct {
	sabotage.Outage

	world *world
	// restarts: the controllers are started again, as the design requires unless the restore bumps
	// the revision. Otherwise they must notice by themselves.
	restarts bool
	backup   string
	madeAt   int64 // in milliseconds, as numbers of decisions
	isDone   bool
}

func (w *world) drawRestore(r *rand.Rand) sabotage.Fault {
	return &troubling{Fault: &restore{world: w, restarts: r.IntN(2) == 0, Outage: w.servers.NewOutage()}, world: w}
}

// Inject implements [sabotage.Fault]. It only makes the backup.
func (f *restore) Inject(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "backup")
	if err != nil {
		return err
	}
	f.backup = dir + "/etcd"
	backUp := func() error {
		f.madeAt = time.Now().UnixMilli()
		return f.world.servers.Plane.BackUp(f.backup)
	}
	if err := f.Begin(ctx, backUp); err != nil {
		f.backup = ""
		return err
	}
	return f.End(ctx, func() error { return nil })
}

// Heal implements [sabotage.Fault]. It restores the backup.
func (f *restore) Heal(ctx context.Context) error {
	if f.backup == "" || f.isDone {
		return nil
	}
	f.Outage = f.world.servers.NewOutage()
	began := now()
	if err := f.Begin(ctx, func() error { return f.world.servers.Plane.Restore(f.backup, nil) }); err != nil {
		return errors.Join(err, f.End(ctx, func() error { return nil }))
	}
	f.isDone = true
	f.world.mu.Lock()
	f.world.restores = append(f.world.restores, pastRestore{journal.Restore{Begin: began, Settled: forever, LostFrom: f.madeAt, LostTo: time.Now().UnixMilli()}, time.Now()})
	f.world.mu.Unlock()
	if err := f.End(ctx, func() error { return nil }); err != nil {
		return err
	}
	for _, p := range f.world.controllers {
		if f.restarts || p.isTroubled() {
			if err := errors.Join(p.kill(false), p.release(ctx, false)); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(f.backup)
}

// String describes the fault.
func (f *restore) String() string {
	return fmt.Sprintf("restore of etcd, restart of the controllers: %t", f.restarts)
}

// pastRestore is a restore with the time when the API server served again.
type pastRestore struct {
	journal.Restore

	at time.Time
}

// pastRestores returns all restores for the check of the journal.
func (w *world) pastRestores() (all []journal.Restore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.restores {
		all = append(all, r.Restore)
	}
	return all
}

// followRestores records until when work may overlap after each restore.
func (w *world) followRestores(ctx context.Context) {
	for sabotage.Wait(ctx, period) {
		w.mu.Lock()
		all := slices.Clone(w.restores)
		w.mu.Unlock()
		for i, r := range all {
			if r.Settled < forever || w.unsettled(ctx, r.at) != nil {
				continue
			}
			w.mu.Lock()
			w.restores[i].Settled = now()
			w.mu.Unlock()
			w.note("all agents have followed the restore of %.3f", float64(r.Begin)/1e9)
		}
	}
}

// settled returns nil if all agents have followed all restores.
func (w *world) settled(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.restores {
		if r.Settled == forever {
			return errors.New("an agent has not followed")
		}
	}
	return nil
}

// unsettled returns an error if an agent may not have followed a restore: it has not renewed its
// Lease since then, or not acknowledged its present contract. An agent whose Lease does not exist
// any more has stopped its work when Leases that are not renewed are taken over.
func (w *world) unsettled(ctx context.Context, since time.Time) error {
	if time.Since(since) < 2*leaseDuration {
		return errors.New("it was a moment ago")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var leases coordinationv1.LeaseList
	if err := w.client.List(ctx, &leases, client.InNamespace(namespace), client.MatchingLabels{contract.PoolLabel: pool}); err != nil {
		return err
	}
	for i := range leases.Items {
		l := &leases.Items[i]
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		if l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(since) {
			return fmt.Errorf("%s was not renewed", l.Name)
		}
		var cm corev1.ConfigMap
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(l), &cm); err != nil {
			return err
		}
		ack, err := contract.DecodeAck([]byte(l.Annotations[contract.AcknowledgedAnnotation]))
		text := []byte(cm.Data[contract.DataKey])
		if err != nil || ack.Incarnation != *l.Spec.HolderIdentity || ack.Digest != contract.Digest(text) {
			return fmt.Errorf("%s has not acknowledged its contract", l.Name)
		}
	}
	return nil
}
