package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// readyTimeout bounds one look whether the API server serves.
const readyTimeout = 30 * time.Second

// Server is one of the two processes of a control plane.
type Server string

// The servers, by the names of their binaries.
const (
	Etcd      Server = "etcd"
	APIServer Server = "kube-apiserver"
)

// process is what envtest has of a server.
type process interface {
	Start() error
	Stop() error
}

func (c *ControlPlane) process(s Server) process {
	if s == Etcd {
		return c.env.ControlPlane.Etcd
	}
	return c.env.ControlPlane.APIServer
}

// StopServer asks a server to stop and waits until it has. It is not an error if the server has
// already ended. An API server without etcd does not stop when it is asked to, so stop it first, or
// kill it.
func (c *ControlPlane) StopServer(s Server) error {
	// A server that ends just then is gone before envtest knows, which it does in a moment.
	if err := retry.OnError(wait.Backoff{Duration: 10 * time.Millisecond, Steps: 100}, isGone, c.process(s).Stop); err != nil {
		return fmt.Errorf("stopping %s: %w", s, err)
	}
	return nil
}

// isGone reports whether the process of a signal did not exist.
func isGone(err error) bool {
	return errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH)
}

// KillServer ends a server at once, as kill -9 does, and waits until it is gone.
func (c *ControlPlane) KillServer(s Server) error {
	if err := c.SignalServer(s, syscall.SIGKILL); err != nil {
		return err
	}
	return c.StopServer(s)
}

// StartServer starts a server again that was stopped or killed, with the same address, data and users, and returns when
// it serves. The API server needs etcd to start.
func (c *ControlPlane) StartServer(s Server) error {
	if err := c.process(s).Start(); err != nil {
		return fmt.Errorf("starting %s again: %w%s", s, err, c.logTail())
	}
	return nil
}

// serves reports whether the API server is ready.
func (c *ControlPlane) serves() bool { return isReady(context.Background(), c.Config) }

// isReady reports whether an API server is ready.
func isReady(ctx context.Context, config *rest.Config) bool {
	cfg := rest.CopyConfig(config)
	cfg.Timeout = readyTimeout
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return false
	}
	return d.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// RestartAPIServer restarts the API server with the same address, data and users. Open watches end.
// A watch that resumes from before the restart fails with "too old resource version", as the new
// server does not have earlier events.
func (c *ControlPlane) RestartAPIServer() error {
	if err := c.StopServer(APIServer); err != nil {
		return err
	}
	return c.StartServer(APIServer)
}

// SignalServer sends a signal to a server. It is not an error if the server has ended.
func (c *ControlPlane) SignalServer(s Server, sig syscall.Signal) error {
	pid, err := c.PID(s)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to %s: %w", sig, s, err)
	}
	return nil
}

// PID returns the process id of a server. If the server has ended, it returns the last one.
func (c *ControlPlane) PID(s Server) (int, error) {
	content, err := os.ReadFile(filepath.Join(c.Dir, string(s)+".pid"))
	if err != nil {
		return 0, fmt.Errorf("finding the process of %s: %w", s, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("finding the process of %s: %w", s, err)
	}
	return pid, nil
}

// EtcdURL is where etcd serves its clients, without TLS. What the API server stores is under /registry.
func (c *ControlPlane) EtcdURL() string { return c.env.ControlPlane.Etcd.URL.String() }

// DataDir returns the data directory of a server. Copy or replace the data of etcd only while it is
// stopped.
func (c *ControlPlane) DataDir(s Server) string { return filepath.Join(c.Dir, string(s)+".d") }
