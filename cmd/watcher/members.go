package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/watcher"
	"nodekeeper.dev/internal/watcher/barrier"
	"nodekeeper.dev/sharding/shardlease"
)

// members adapts the ring's members to the watcher.
type members struct{ *ring.Member }

var (
	_ barrier.Members = members{}
	_ watcher.Lease   = members{}
	_ watcher.Ring    = members{}
)

// Peers returns the other watchers.
func (m members) Peers() []barrier.Peer {
	all := m.Member.Peers()
	peers := make([]barrier.Peer, 0, len(all))
	for _, p := range all {
		peers = append(peers, barrier.Peer{Name: p.Name, UID: p.UID, Gone: !p.State.Member(), Since: p.Since, Annotations: p.Annotations})
	}
	return peers
}

// waitToJoin returns when the others can see this watcher, or ctx is done.
func (m members) waitToJoin(ctx context.Context) {
	if m.Joined() {
		return
	}
	changes := m.Changes()
	for !m.Joined() {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
	}
}

// Rank returns how many ready watchers precede this one, and whether any unready ones do.
func (m members) Rank(node string) (ready int, unready bool) {
	p := m.Place(node)
	return p.Rank, p.Unready
}

// join makes the manager a member of the watchers, with these annotations. It does not serve yet.
func join(mgr manager.Manager, o *service.Options, about map[string]string) (members, error) {
	m, err := service.JoinAs(mgr, ring.Config{Config: shardlease.Config{Annotations: about}, Group: program, Standby: true}, o, func(run manager.RunnableFunc) manager.Runnable {
		return early{mgr.GetCache(), run}
	})
	return members{m}, err
}

// early is a runnable that a manager runs together with its caches: it starts before these are
// filled, and ends after everything else.
type early struct {
	cache cache.Cache
	run   func(context.Context) error
}

// Start runs it.
func (e early) Start(ctx context.Context) error { return e.run(ctx) }

// GetCache makes the manager treat it as a cache.
func (e early) GetCache() cache.Cache { return e.cache }
