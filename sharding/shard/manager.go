package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// leavePeriod is how often a shard that leaves counts its objects, in its caches.
	leavePeriod = 100 * time.Millisecond
	// lastWords is how long reconcilers whose contexts have ended have until Start returns. The sharder
	// moves no object before 4/3 of the lease duration have passed since the right ended.
	lastWords = 2 * time.Second
)

// sharded is a manager that runs while its shard holds its Lease.
type sharded struct {
	manager.Manager

	shard *Shard
	mu    sync.Mutex
	// counted returns how many objects of a main kind the caches hold.
	counted []func(ctx context.Context) (int, error)
}

// Start runs the manager until ctx ends and the shard has left, see [Shard.NewManager].
func (m *sharded) Start(ctx context.Context) error {
	s := m.shard
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
	go func() {
		select {
		case <-ctx.Done():
			select {
			case <-s.right.begun: // one that never began has nothing to give away
				s.leave(running, m.isEmpty)
			default:
			}
		case <-s.right.ended:
		}
		stop()
	}()
	err, isOver := m.run(running)
	if s.right.isLost() {
		logf.FromContext(ctx).Info("Lost the Lease of this shard", "shard", s.options.Name)
		return errors.Join(ErrLeaseLost, err)
	}
	if isOver && err == nil { // else a reconciler can still be at work: the Lease must expire
		release()
		<-released
	}
	return err
}

// run runs the manager. It reports false if the shard has lost the right to act and some part of the
// manager does not end.
func (m *sharded) run(ctx context.Context) (err error, isOver bool) { //nolint:revive // the error is that of the manager
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err, true
	case <-m.shard.right.ended:
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err, true
	case <-timer.C:
		return nil, false
	}
}

// count makes a shard that leaves wait until no object of a kind is left.
func (m *sharded) count(kind schema.GroupVersionKind, onlyMetadata bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted = append(m.counted, func(ctx context.Context) (int, error) {
		list, err := newList(m.GetScheme(), kind, onlyMetadata)
		if err != nil {
			return 0, err
		}
		if err := m.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy, client.Limit(1)); err != nil {
			return 0, err //nolint:wrapcheck // nobody sees it
		}
		return countItems(list), nil
	})
}

// isEmpty reports whether the caches hold no main object. An error means that it is not known.
func (m *sharded) isEmpty(ctx context.Context) bool {
	m.mu.Lock()
	counted := m.counted
	m.mu.Unlock()
	for _, count := range counted {
		if n, err := count(ctx); err != nil || n > 0 {
			return false
		}
	}
	return true
}

