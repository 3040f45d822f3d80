package robustness

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"nodekeeper.dev/test/controlplane"
)

// sightTime bounds the lag of a watcher without faults: events that are older when a server stops
// have been seen.
const sightTime = 3 * time.Second

// errServersBusy means that another fault has already stopped a server.
var errServersBusy = errors.New("a server is stopped already")

// outage is a time in which a server does not respond. Watches end with it, so events of the last
// moment before it may not be seen by any watcher. There is one outage at a time.
type outage struct {
	world   *world
	server  controlplane.Server
	holds   bool // it holds the servers
	unblind func(to uint64)
}

func drawServer(r *rand.Rand) controlplane.Server {
	return []controlplane.Server{controlplane.Etcd, controlplane.APIServer}[r.IntN(2)]
}

// begin calls stop once every earlier event has been seen.
func (o *outage) begin(ctx context.Context, stop func() error) error {
	if !o.world.serversMu.TryLock() {
		return errServersBusy
	}
	o.holds = true
	from, err := o.world.storage.revision(ctx)
	if err != nil {
		return err
	}
	o.unblind = o.world.goBlind(from)
	if !wait(ctx, sightTime) {
		return ctx.Err()
	}
	return stop()
}

// end calls start if the outage has begun, and returns once the watcher without faults receives
// events again.
func (o *outage) end(ctx context.Context, start func() error) error {
	if !o.holds {
		return nil
	}
	if o.unblind != nil {
		if err := start(); err != nil {
			return err
		}
		if err := o.awaitSight(ctx); err != nil {
			return err
		}
	}
	o.holds = false
	o.world.serversMu.Unlock()
	return nil
}

func (o *outage) awaitSight(ctx context.Context) error {
	wait(ctx, sightTime) // until then, a watch that is ending has ended
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
		o.unblind(to)
	}
	return err
}

// restartServer stops a server, gracefully or by kill -9, and starts it again. While etcd is down,
// the API server runs but fails.
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

// Separate types are counted separately.
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
		// The server still runs if inject was interrupted.
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
