package robustness

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"nodekeeper.dev/test/controlplane"
)

// sightTime is how far a watcher that nothing was done to may be behind: what happened so long before a server ends was seen.
const sightTime = 3 * time.Second

// errServersBusy says that another fault has a server stopped already.
var errServersBusy = errors.New("a server is stopped already")

// outage is a time in which a server does not answer. Watches end with it, so what happens in the last moment
// before may be seen by nobody. There is one outage at a time.
type outage struct {
	world  *world
	server controlplane.Server
	isOurs bool // holds the servers
	see    func(to uint64)
}

func drawServer(r *rand.Rand) controlplane.Server {
	return []controlplane.Server{controlplane.Etcd, controlplane.APIServer}[r.IntN(2)]
}

// begin calls stop when everything that happened before it is seen.
func (o *outage) begin(ctx context.Context, stop func() error) error {
	if !o.world.serversMu.TryLock() {
		return errServersBusy
	}
	o.isOurs = true
	from, err := o.world.storage.revision(ctx)
	if err != nil {
		return err
	}
	o.see = o.world.goBlind(from)
	if !wait(ctx, sightTime) {
		return ctx.Err()
	}
	return stop()
}

// end calls start, if the outage ever began, and returns when the watcher that nothing was done to sees again.
func (o *outage) end(ctx context.Context, start func() error) error {
	if !o.isOurs {
		return nil
	}
	if o.see != nil {
		if err := start(); err != nil {
			return err
		}
		if err := o.awaitSight(ctx); err != nil {
			return err
		}
	}
	o.isOurs = false
	o.world.serversMu.Unlock()
	return nil
}

func (o *outage) awaitSight(ctx context.Context) error {
	wait(ctx, sightTime) // a watch that is about to end has ended by then
	err := eventually(ctx, func(context.Context) error {
		for _, p := range o.world.crew {
			if p.isAnchor && !p.proxy.Watching("nodes") {
				return errors.New(p.name + " does not watch")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	to, err := o.world.storage.revision(ctx)
	if err == nil {
		o.see(to)
	}
	return err
}

// restartServer ends a server, as it is asked to or by kill -9, and starts it again. While etcd is away, the API server
// stays and fails.
type restartServer struct {
	outage

	isKill bool
}

func drawRestartServer(w *world, r *rand.Rand) fault {
	o := restartServer{outage: outage{world: w, server: drawServer(r)}, isKill: r.IntN(2) == 0}
	if o.server == controlplane.Etcd {
		return &restartEtcd{o}
	}
	return &restartAPIServer{o}
}

// They are types of their own to be counted.
type (
	restartAPIServer struct{ restartServer }
	restartEtcd      struct{ restartServer }
)

func (f *restartServer) inject(ctx context.Context) error {
	return f.begin(ctx, func() error {
		if f.isKill {
			return f.world.plane.KillServer(f.server)
		}
		return f.world.plane.StopServer(f.server)
	})
}

func (f *restartServer) heal(ctx context.Context) error {
	return f.end(ctx, func() error {
		// It still runs if inject was interrupted.
		return errors.Join(f.world.plane.StopServer(f.server), f.world.plane.StartServer(f.server))
	})
}

func (f *restartServer) String() string {
	if f.isKill {
		return "kill -9 of " + string(f.server)
	}
	return "stop of " + string(f.server)
}

// freezeServer is SIGSTOP and then SIGCONT of a server: every request hangs.
type freezeServer struct{ outage }

func drawFreezeServer(w *world, r *rand.Rand) fault {
	return &freezeServer{outage{world: w, server: drawServer(r)}}
}

func (f *freezeServer) inject(ctx context.Context) error {
	return f.begin(ctx, func() error { return f.world.plane.SignalServer(f.server, syscall.SIGSTOP) })
}

func (f *freezeServer) heal(ctx context.Context) error {
	return f.end(ctx, func() error { return f.world.plane.SignalServer(f.server, syscall.SIGCONT) })
}

func (f *freezeServer) String() string { return "SIGSTOP of " + string(f.server) }
