package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nodekeeper.dev/internal/daemon/rewind"
)

// stopTimeout bounds how long Start waits for reconcilers after their contexts have ended. The
// sharder moves no object until 4/3 of the lease duration after the right has ended.
const stopTimeout = 2 * time.Second

// sharded is a manager that runs while its shard holds its Lease.
type sharded struct {
	manager.Manager

	shard *Shard
}

// Start runs the manager until ctx ends and the shard has left. See [Shard.NewManager].
func (m *sharded) Start(ctx context.Context) error {
	s := m.shard
	if err := m.acknowledgeRest(); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	released := make(chan struct{})
	go func() {
		defer close(released)
		s.keeper.Run(keeping)
	}()
	go s.right.watch(keeping)
	go s.endIfRewound(keeping)
	go s.begin(keeping)
	go func() {
		select {
		case <-ctx.Done():
			if !s.options.KeepObjects {
				s.leave(running)
			}
		case <-s.right.ended:
		case <-keeping.Done():
		}
		stop()
	}()
	go func() {
		select {
		case <-s.right.ended: // a renewal now would keep this shard's objects from other shards
			s.keeper.Abandon()
			release()
		case <-keeping.Done():
		}
	}()
	err := m.run(running)
	if s.right.isLost() {
		logf.FromContext(ctx).Info("Lost the Lease of this shard", "shard", s.options.Name)
		if s.detector.Rewound() {
			err = errors.Join(rewind.ErrRewound, err)
		}
		return errors.Join(ErrLeaseLost, err)
	}
	if err != nil || s.isAtWork() || s.options.KeepObjects { // other shards must not take over before the Lease expires
		s.keeper.Abandon()
	}
	release()
	<-released
	return err
}

// endIfRewound ends the right to act if etcd was restored from a backup. The caches may then hold
// objects that belong to other shards again, and no watch will report that.
func (s *Shard) endIfRewound(ctx context.Context) {
	if s.detector.Run(ctx) != nil {
		s.right.end()
	}
}

// run runs the manager. It returns when the manager ends, or stopTimeout after the shard has lost
// the right to act.
func (m *sharded) run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-m.shard.right.ended:
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return nil
	}
}

// acknowledgeRest adds a controller that only releases objects for each of the Kinds that no other
// controller reconciles; otherwise the sharder would wait forever. It also makes the caches hold
// these kinds from the start.
func (m *sharded) acknowledgeRest() error {
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	ignored := builder.WithPredicates(predicate.NewPredicateFuncs(func(client.Object) bool { return false }))
	for _, object := range m.shard.options.Kinds {
		kind, err := apiutil.GVKForObject(object, m.GetScheme())
		if err != nil || m.shard.isReconciled(kind.GroupKind()) {
			continue
		}
		name := strings.ToLower("acknowledge-" + kind.GroupKind().String())
		if err := m.shard.ControllerManagedBy(m).For(object, ignored).Named(name).Complete(nothing); err != nil {
			return fmt.Errorf("adding a controller that releases objects of kind %s: %w", kind.Kind, err)
		}
		m.shard.setIdle(kind.GroupKind())
	}
	return nil
}

// countIn returns the number of objects of a kind in the cache, at most limit unless that is 0.
func (s *Shard) countIn(ctx context.Context, m *mainKind, limit int64) (int, error) {
	list, err := s.listOf(m)
	if err != nil {
		return 0, err
	}
	if err := s.mgr.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy, client.Limit(limit)); err != nil {
		return 0, fmt.Errorf("counting the objects of kind %s: %w", m.kind.Kind, err)
	}
	return meta.LenList(list), nil
}

// listOf returns an empty list of the type under which a kind is cached.
func (s *Shard) listOf(m *mainKind) (client.ObjectList, error) {
	return listOf(s.mgr.GetScheme(), m.kind, m.object)
}

// count returns the number of main objects in the caches of this shard. It takes no context because
// the metrics registry calls it.
func (s *Shard) count() float64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return float64(s.countAll(ctx))
}

func (s *Shard) countAll(ctx context.Context) (n int) {
	for _, m := range s.reconciled() {
		k, err := s.countIn(ctx, m, 0)
		if err != nil {
			continue // the cache is not synced
		}
		n += k
	}
	return n
}
