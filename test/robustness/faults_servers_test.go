package robustness

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"nodekeeper.dev/test/controlplane"
)

// sightTime is how far a watcher that nothing was done to may be behind: what happened so long before a server ends was seen.
const sightTime = 3 * time.Second

// errServersBusy says that another fault has a server stopped already.
var errServersBusy = errors.New("a server is stopped already")

// restartServer ends a server, as it is asked to or by kill -9, and starts it again. Watches end with it, so what happens in
// the last moment before may be seen by nobody.
type restartServer struct {
	world  *world
	server controlplane.Server
	isKill bool

	isOurs bool // holds the servers
	see    func(to uint64)
}

// restartAPIServer is a restartServer of the API server.
type restartAPIServer struct{ restartServer }

func drawRestartAPIServer(w *world, r *rand.Rand) fault {
	return &restartAPIServer{restartServer{world: w, server: controlplane.APIServer, isKill: r.IntN(2) == 0}}
}

// restartEtcd is a restartServer of etcd. The API server stays and fails.
type restartEtcd struct{ restartServer }

func drawRestartEtcd(w *world, r *rand.Rand) fault {
	return &restartEtcd{restartServer{world: w, server: controlplane.Etcd, isKill: r.IntN(2) == 0}}
}

func (f *restartServer) inject(ctx context.Context) error {
	if !f.world.serversMu.TryLock() {
		return errServersBusy
	}
	f.isOurs = true
	from, err := f.world.storage.revision(ctx)
	if err != nil {
		return err
	}
	f.see = f.world.goBlind(from)
	if !wait(ctx, sightTime) {
		return ctx.Err()
	}
	if f.isKill {
		return f.world.plane.KillServer(f.server)
	}
	return f.world.plane.StopServer(f.server)
}

func (f *restartServer) heal(ctx context.Context) error {
	if !f.isOurs {
		return nil
	}
	if f.see != nil {
		if err := f.startAgain(ctx); err != nil {
			return err
		}
	}
	f.isOurs = false
	f.world.serversMu.Unlock()
	return nil
}

// startAgain starts the server and waits until the watcher that nothing was done to sees again.
func (f *restartServer) startAgain(ctx context.Context) error {
	if err := f.world.plane.StopServer(f.server); err != nil { // if inject was interrupted it still runs
		return err
	}
	if err := f.world.plane.StartServer(f.server); err != nil {
		return err
	}
	wait(ctx, sightTime) // a watch that is about to end has ended by then
	for _, p := range f.world.crew {
		if err := eventually(ctx, func(context.Context) error { return f.sees(p) }); err != nil {
			return err
		}
	}
	to, err := f.world.storage.revision(ctx)
	if err == nil {
		f.see(to)
	}
	return err
}

func (f *restartServer) sees(p *process) error {
	if p.isAnchor && !p.proxy.Watching("nodes") {
		return errors.New(p.name + " does not watch")
	}
	return nil
}

func (f *restartServer) String() string {
	if f.isKill {
		return "kill -9 of " + string(f.server)
	}
	return "stop of " + string(f.server)
}
