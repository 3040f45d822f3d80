package sabotage

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"

	"nodekeeper.dev/test/controlplane"
)

// ErrServersBusy means that another fault has already stopped a server.
var ErrServersBusy = errors.New("a server is stopped already")

// Servers are the servers of a control plane. At most one fault at a time concerns them. It is safe
// for concurrent use.
type Servers struct {
	Plane *controlplane.ControlPlane
	// Before is called before an outage, and After when it is over. Either may be nil. After is called
	// again if it returns an error.
	Before, After func(ctx context.Context) error

	mu sync.Mutex
}

// Outage is a time in which a server does not respond.
type Outage struct {
	servers *Servers
	holds   bool // it holds the servers
	began   bool
}

// NewOutage returns an outage that has not begun.
func (s *Servers) NewOutage() Outage { return Outage{servers: s} }

// Begin calls stop if no other outage lasts.
func (o *Outage) Begin(ctx context.Context, stop func() error) error {
	if !o.servers.mu.TryLock() {
		return ErrServersBusy
	}
	o.holds = true
	if o.servers.Before != nil {
		if err := o.servers.Before(ctx); err != nil {
			return err
		}
	}
	o.began = true
	return stop()
}

// End calls start if the outage has begun.
func (o *Outage) End(ctx context.Context, start func() error) error {
	if !o.holds {
		return nil
	}
	if o.began {
		if err := start(); err != nil {
			return err
		}
	}
	if o.servers.After != nil {
		if err := o.servers.After(ctx); err != nil {
			return err
		}
	}
	o.holds = false
	o.servers.mu.Unlock()
	return nil
}

func drawServer(r *rand.Rand) controlplane.Server {
	return []controlplane.Server{controlplane.Etcd, controlplane.APIServer}[r.IntN(2)]
}

// restartServer stops a server, gracefully or by kill -9, and starts it again. While etcd is down,
// the API server runs but fails.
type restartServer struct {
	Outage

	server controlplane.Server
	isKill bool
}

// Separate types are counted separately.
type (
	restartAPIServer struct{ restartServer }
	restartEtcd      struct{ restartServer }
)

// Restart draws a fault that stops a server and starts it again.
func (s *Servers) Restart(r *rand.Rand) Fault {
	f := restartServer{Outage: s.NewOutage(), server: drawServer(r), isKill: r.IntN(2) == 0}
	if f.server == controlplane.Etcd {
		return &restartEtcd{f}
	}
	return &restartAPIServer{f}
}

// Inject implements [Fault].
func (f *restartServer) Inject(ctx context.Context) error {
	return f.Begin(ctx, func() error {
		if f.isKill {
			return f.servers.Plane.KillServer(f.server)
		}
		return f.servers.Plane.StopServer(f.server)
	})
}

// Heal implements [Fault].
func (f *restartServer) Heal(ctx context.Context) error {
	return f.End(ctx, func() error {
		// The server still runs if Inject was interrupted.
		return errors.Join(f.servers.Plane.StopServer(f.server), f.servers.Plane.StartServer(f.server))
	})
}

// String describes the fault.
func (f *restartServer) String() string {
	if f.isKill {
		return "kill -9 of " + string(f.server)
	}
	return "stop of " + string(f.server)
}

// freezeServer is SIGSTOP and then SIGCONT of a server: every request hangs.
type freezeServer struct {
	Outage

	server controlplane.Server
}

// Freeze draws a fault that freezes a server.
func (s *Servers) Freeze(r *rand.Rand) Fault {
	return &freezeServer{Outage: s.NewOutage(), server: drawServer(r)}
}

// Inject implements [Fault].
func (f *freezeServer) Inject(ctx context.Context) error {
	return f.Begin(ctx, func() error { return f.servers.Plane.SignalServer(f.server, syscall.SIGSTOP) })
}

// Heal implements [Fault].
func (f *freezeServer) Heal(ctx context.Context) error {
	return f.End(ctx, func() error { return f.servers.Plane.SignalServer(f.server, syscall.SIGCONT) })
}

// String describes the fault.
func (f *freezeServer) String() string { return "SIGSTOP of " + string(f.server) }
