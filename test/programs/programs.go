// Package programs runs nodekeeper's built programs as processes, for the end-to-end tests and the
// demo. It takes them from bin/ (make build). They listen on free loopback ports, and on Linux end
// with the process that started them at the latest.
package programs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"nodekeeper.dev/test/repository"
)

// readyPeriod is the polling interval of the readiness probe.
const readyPeriod = 20 * time.Millisecond

// Program is one running process. It is safe for concurrent use.
type Program struct {
	// Name is the program, such as watcher; Identity is the value of --identity.
	Name, Identity string

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // result of the process; valid once done is closed

	mu     sync.Mutex
	output bytes.Buffer
	// probe is the address of the health probe. It is valid once heard is closed, after the process
	// has logged it.
	probe string
	heard chan struct{}
}

// Start starts bin/<name> with a kubeconfig. The args follow the default arguments, so they can
// override them.
func Start(name, identity, kubeconfig string, args ...string) (*Program, error) {
	return StartWith(nil, name, identity, kubeconfig, args...)
}

// StartWith is like Start, with additional environment variables of the form "KEY=value".
func StartWith(env []string, name, identity, kubeconfig string, args ...string) (*Program, error) {
	return Launch(env, name, identity, append([]string{
		"--kubeconfig=" + kubeconfig,
		"--identity=" + identity,
		"--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address=127.0.0.1:0",
	}, args...)...)
}

// Launch starts bin/<name> with only these arguments, and additional environment variables of the
// form "KEY=value".
func Launch(env []string, name, identity string, args ...string) (*Program, error) {
	bin, err := Path(name)
	if err != nil {
		return nil, err
	}
	return LaunchFile(env, bin, name, identity, args...)
}

// LaunchFile is like Launch for any executable file, for example the test itself.
func LaunchFile(env []string, bin, name, identity string, args ...string) (*Program, error) {
	p := &Program{Name: name, Identity: identity, done: make(chan struct{}), heard: make(chan struct{})}
	p.cmd = exec.Command(bin, args...) //nolint:noctx // it is ended by Stop, Kill, or the end of this process
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = processAttributes()
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", identity, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", identity, err)
	}
	go func() {
		p.read(pipe)
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// BinEnv is the environment variable that names the directory of the programs, if it is not bin/ of the module:
// RACE=yes of make tests programs that were built with the race detector.
const BinEnv = "NODEKEEPER_BIN"

// Path returns the path of a built program.
func Path(name string) (string, error) {
	dir := os.Getenv(BinEnv)
	if dir == "" {
		root, err := repository.Root()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built: run \"make build\"", path)
	}
	return path, nil
}

// read keeps the output and searches it for the address of the health probe.
func (p *Program) read(pipe io.Reader) {
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var entry struct{ Msg, Address string }
		_ = json.Unmarshal(lines.Bytes(), &entry) // a line that is not JSON has no address
		p.mu.Lock()
		p.output.Write(lines.Bytes())
		p.output.WriteByte('\n')
		if p.probe == "" && entry.Msg == "Serving probes" {
			p.probe = entry.Address
			close(p.heard)
		}
		p.mu.Unlock()
	}
}

// WaitReady waits until the readiness probe succeeds. It returns an error with the process's output
// if the process ends instead, or if ctx is done.
func (p *Program) WaitReady(ctx context.Context) error {
	select {
	case <-p.heard:
	case <-p.done:
		return fmt.Errorf("%s ended before it was ready (%w):\n%s", p.Identity, p.err, p.Output())
	case <-ctx.Done():
		return fmt.Errorf("%s does not get ready (%w):\n%s", p.Identity, ctx.Err(), p.Output())
	}
	tick := time.NewTicker(readyPeriod)
	defer tick.Stop()
	for !p.isReady(ctx) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready (%w):\n%s", p.Identity, p.err, p.Output())
		case <-ctx.Done():
			return fmt.Errorf("%s does not get ready (%w):\n%s", p.Identity, ctx.Err(), p.Output())
		case <-tick.C:
		}
	}
	return nil
}

func (p *Program) isReady(ctx context.Context) bool {
	status, _, err := p.Probe(ctx, "/readyz")
	return err == nil && status == http.StatusOK
}

// Probe returns the response of the process to /healthz or /readyz. It waits until the process
// responds, or has ended.
func (p *Program) Probe(ctx context.Context, path string) (status int, body string, err error) {
	select {
	case <-p.heard:
	case <-p.done:
		return 0, "", fmt.Errorf("%s has ended (%w):\n%s", p.Identity, p.err, p.Output())
	case <-ctx.Done():
		return 0, "", fmt.Errorf("%s answers no probes (%w):\n%s", p.Identity, ctx.Err(), p.Output())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.probe+path, http.NoBody)
	if err != nil {
		return 0, "", fmt.Errorf("probing %s: %w", p.Identity, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("probing %s: %w", p.Identity, err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", fmt.Errorf("probing %s: %w", p.Identity, err)
	}
	return resp.StatusCode, string(content), nil
}

// PID returns the process id.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Output returns the standard error of the process so far.
func (p *Program) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Clone(p.output.String())
}

// Done is closed when the process has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code of an ended process; -1 if a signal ended it or it still runs.
func (p *Program) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Signal sends a signal to the process. It is not an error if the process has ended.
func (p *Program) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to %s: %w", sig, p.Identity, err)
	}
	return nil
}

// Freeze stops the process until it gets a SIGCONT. It waits until all threads have stopped: a
// signal takes a moment to reach running ones.
func (p *Program) Freeze(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) { return isFrozen(p.PID()) })
	if err != nil {
		return fmt.Errorf("waiting until %s stands still: %w", p.Identity, err)
	}
	return nil
}

// Stop asks the process to end and waits for it. After the timeout it kills the process and returns
// an error.
func (p *Program) Stop(timeout time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM:\n%s", p.Identity, timeout, p.Output()), p.Kill())
	}
}

// StopAll concurrently ends programs as [Program.Stop] does, and waits until all have ended.
func StopAll(all []*Program, timeout time.Duration) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = p.Stop(timeout) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Kill ends the process immediately (kill -9), and waits for it.
func (p *Program) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}
