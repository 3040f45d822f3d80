package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/test/ports"
)

// Twin is a further kube-apiserver of a control plane, with the same data, certificates and users.
// Its methods are not safe for concurrent use.
type Twin struct {
	// Config is like that of the control plane, for this server.
	Config *rest.Config

	of   *ControlPlane
	args []string
	cmd  *exec.Cmd
}

// Twin starts a second API server with the arguments of the running one, and waits until it is
// ready. The caller must call Stop before it stops the control plane. It needs Linux.
func (c *ControlPlane) Twin() (*Twin, error) {
	pid, err := c.PID(APIServer)
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("reading the arguments of %s: %w", APIServer, err)
	}
	address, err := ports.Address()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	t := &Twin{Config: rest.CopyConfig(c.Config), of: c}
	for arg := range bytes.SplitSeq(bytes.TrimRight(line, "\x00"), []byte{0}) {
		if bytes.HasPrefix(arg, []byte("--secure-port=")) {
			arg = []byte("--secure-port=" + port)
		}
		t.args = append(t.args, string(arg))
	}
	t.Config.Host = address
	return t, t.Start()
}

// Start starts the server again after Stop, and waits until it is ready.
func (t *Twin) Start() error {
	t.cmd = exec.Command(t.args[0], t.args[1:]...) //nolint:noctx // Stop ends it, or the guard of the control plane
	t.cmd.Stdout, t.cmd.Stderr = t.of.log, t.of.log
	if err := t.cmd.Start(); err != nil {
		return fmt.Errorf("starting a second %s: %w", APIServer, err)
	}
	pid := []byte(strconv.Itoa(t.cmd.Process.Pid))
	if err := os.WriteFile(t.pidFile(), pid, 0o600); err != nil { // for the guard
		return errors.Join(fmt.Errorf("starting a second %s: %w", APIServer, err), t.Stop())
	}
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		return isReady(ctx, t.Config), nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("starting a second %s: %w%s", APIServer, err, t.of.logTail()), t.Stop())
	}
	return nil
}

// Stop ends the server at once, as kill -9 does, and waits until it is gone.
func (t *Twin) Stop() error {
	err := t.cmd.Process.Kill()
	_ = t.cmd.Wait() // The error reports that it was killed.
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending a second %s: %w", APIServer, err)
	}
	_ = os.Remove(t.pidFile())
	return nil
}

func (t *Twin) pidFile() string { return filepath.Join(t.of.Dir, "twin.pid") }
