package robustness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/sabotage"
)

const (
	// A program that ends is restarted after minBackoff, doubling up to maxBackoff while it keeps
	// ending early. Kubernetes does the same with longer delays.
	minBackoff, maxBackoff = 500 * time.Millisecond, 4 * time.Second
	// stopTimeout is less than the grace period of a pod.
	stopTimeout = 28 * time.Second
)

// process is one of the programs: a controller, or the agent of a pod. It is restarted whenever it
// ends. It is safe for concurrent use.
type process struct {
	world      *world
	kubeconfig string
	proxy      *faultproxy.Proxy
	isAgent    bool
	slot       int // of a pod

	mu sync.Mutex
	// name and uid are those of the pod. A new pod has a new uid, a restarted container has not.
	name    string
	uid     types.UID
	running *programs.Program // nil if it is down
	over    chan struct{}     // closed when it is down again
	// held is the number of faults that keep it down.
	held   int
	frozen int // faults that have stopped it
	// isKilled reports whether the test itself ended the program.
	isKilled bool
}

// String returns the name of the pod.
func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

// Proxy implements sabotage.Victim.
func (p *process) Proxy() *faultproxy.Proxy { return p.proxy }

// renew replaces the pod of an agent by a new one.
func (p *process) renew() {
	if !p.isAgent {
		return
	}
	name := p.world.podName(p.slot)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.uid = name, uuid.NewUUID()
}

// run keeps the program running until ctx is canceled, and then ends it as Kubernetes does.
func (p *process) run(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		if p.isHeld() {
			sabotage.Wait(ctx, period)
			continue
		}
		began := time.Now()
		p.live(ctx)
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		sabotage.Wait(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// live is one life of the program.
func (p *process) live(ctx context.Context) {
	running, err := p.launch()
	if err != nil {
		p.world.fail("starting %s: %v", p, err)
		return
	}
	defer p.ended(running)
	select {
	case <-running.Done():
	case <-ctx.Done():
		if err := running.Stop(stopTimeout); err != nil {
			p.world.fail("%v", err)
		}
	}
}

// launch starts the program.
func (p *process) launch() (*programs.Program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var env, args []string
	if p.isAgent {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		env = []string{workEnv + "=" + p.world.dir, journal.PodEnv + "=" + p.name}
		args = []string{
			"agent", "--kubeconfig=" + p.kubeconfig, "--namespace=" + namespace, "--pool=" + pool, "--pod=" + p.name, "--pod-uid=" + string(p.uid),
			"--lease-duration=" + leaseDuration.String(), "--exec", "--", self,
		}
	} else {
		env = []string{"POD_NAME=" + p.name}
		args = []string{"controller", "--kubeconfig=" + p.kubeconfig, "--pool-config=" + p.world.pools, "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0"}
	}
	running, err := programs.Launch(env, "placement", p.name, args...)
	if err != nil {
		return nil, err
	}
	p.running, p.over, p.isKilled = running, make(chan struct{}), false
	return running, nil
}

// ended checks how a program ended: it must not panic, and the race detector, if enabled, must not
// find anything.
func (p *process) ended(running *programs.Program) {
	p.mu.Lock()
	isKilled := p.isKilled
	p.running = nil
	close(p.over)
	p.mu.Unlock()
	p.world.keep(running)
	output := running.Output()
	for _, bad := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if at := strings.Index(output, bad); at >= 0 {
			p.world.fail("%s: %s", running.Identity, output[at:min(len(output), at+4000)])
		}
	}
	if running.ExitCode() != 0 && !isKilled {
		lines := strings.Split(strings.TrimSpace(output), "\n")
		p.world.count(p.world.exits, reason(lines[len(lines)-1]))
	}
}

func (p *process) isHeld() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held > 0
}

// kill kills the program (kill -9) and keeps it down until release is called. With the guard of an
// agent, all processes of its container end.
func (p *process) kill(withGuard bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
	p.isKilled = true
	if p.running == nil {
		return nil
	}
	var guards []int
	if withGuard {
		guards = children(p.running.PID())
	}
	err := p.running.Kill()
	for _, guard := range guards {
		err = errors.Join(err, send(guard, syscall.SIGKILL))
	}
	return err
}

// terminate ends the program as Kubernetes does, and keeps it down until release is called.
func (p *process) terminate() error {
	p.mu.Lock()
	p.held++
	p.mu.Unlock()
	return p.signal(syscall.SIGTERM)
}

// release lets the program restart, as the next container of the pod or as a new pod.
func (p *process) release(ctx context.Context, asNewPod bool) error {
	if asNewPod {
		if err := p.awaitEnd(ctx); err != nil {
			return err
		}
		p.renew()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	return nil
}

// awaitEnd waits until the program has ended: a pod is replaced after that. A program that does not
// end is killed, as after the grace period.
func (p *process) awaitEnd(ctx context.Context) error {
	p.mu.Lock()
	running, over := p.running, p.over
	p.mu.Unlock()
	if running == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-time.After(stopTimeout):
	case <-ctx.Done():
	}
	if err := running.Kill(); err != nil {
		return err
	}
	<-over
	return nil
}

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return nil
	}
	return p.running.Signal(sig)
}

// freeze pauses the program, and thaw resumes it.
func (p *process) freeze() error {
	p.mu.Lock()
	p.frozen++
	p.mu.Unlock()
	return p.signal(syscall.SIGSTOP)
}

func (p *process) thaw() error {
	p.mu.Lock()
	p.frozen--
	p.mu.Unlock()
	return p.signal(syscall.SIGCONT)
}

// isTroubled reports whether a fault keeps the program from what it does.
func (p *process) isTroubled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen > 0 || p.held > 0 || p.proxy.HasFaults()
}

// killGuard kills the guard of an agent.
func (p *process) killGuard() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return nil
	}
	p.isKilled = true // the agent ends with an error
	var errs []error
	for _, guard := range children(p.running.PID()) {
		errs = append(errs, send(guard, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// ready returns nil if the program runs, and a controller reports that it is ready.
func (p *process) ready(ctx context.Context) error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil {
		return fmt.Errorf("%s does not run", p)
	}
	if p.isAgent {
		return nil
	}
	return running.WaitReady(ctx)
}

func send(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// children returns the children of a process.
func children(pid int) (list []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // none if the process has ended
	for _, task := range tasks {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for field := range strings.FieldsSeq(string(content)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	slices.Sort(list)
	return list
}

// reason returns the constant start of an error, without the parts that vary.
func reason(line string) string {
	for _, differs := range []string{`"`, ",", "https://"} {
		line, _, _ = strings.Cut(line, differs)
	}
	return fmt.Sprintf("%.120s", strings.TrimSpace(line))
}
