package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/internal/boottime"
)

// ErrEnded is returned when the guard process has ended by itself. Programs may still run, so the
// agent must end without releasing its Lease.
var ErrEnded = errors.New("the guard process has ended")

// Config configures a guard. All fields except ReadyLine are required.
type Config struct {
	// Executable is a program that calls [Main] if its first argument is Command.
	Executable string
	// Pod identifies the pod: only one guard runs at a time for each.
	Pod string
	// StopTime is how long programs may take to end when the Lease was not renewed in time.
	StopTime time.Duration
	// ReadyLine is a line that a program prints once it works. If empty, it works when it has
	// started.
	ReadyLine string
	// Program is the program with its arguments.
	Program []string
}

// Command is the first argument of a guard process.
const Command = "guard"

// Guard is the agent's side. It is safe for concurrent use.
type Guard struct {
	process *os.Process
	queue   signal.Signal
	in      io.Closer
	up      chan struct{} // closed when the guard process can start programs
	done    chan struct{} // closed when the guard process has ended

	mu       sync.Mutex
	until    time.Duration // until when programs may run
	asked    bool          // a ping was sent, and not answered
	pending  []request     // to send, in order
	lastID   int64
	programs map[int64]chan response
}

// Start starts a guard process. It ends when this process ends. This process becomes the parent of
// processes that the guard process leaves behind.
func Start(cfg Config) (*Guard, error) {
	if err := adoptOrphans(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	cmd := exec.Command(cfg.Executable, cfg.args()...) //nolint:gosec,noctx // the own executable; it must outlive any context
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = guardAttributes()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	g := &Guard{process: cmd.Process, queue: signal.New(), in: in, up: make(chan struct{}), done: make(chan struct{}), programs: map[int64]chan response{}}
	go g.write(in)
	go func() {
		g.read(out)
		_ = cmd.Wait() // that it has ended is all that matters
		killSession(cmd.Process.Pid)
		close(g.done)
	}()
	go g.check(cfg.StopTime)
	return g, nil
}

func (c *Config) args() []string {
	return append([]string{Command, modeGuard, c.Pod, c.StopTime.String(), c.ReadyLine}, c.Program...)
}

// WaitUp waits until the guard process can start programs: no guard of an earlier agent of this pod
// runs any longer.
func (g *Guard) WaitUp(ctx context.Context) error {
	select {
	case <-g.up:
		return nil
	case <-g.done:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close kills all programs and ends the guard process. It does not wait.
func (g *Guard) Close() { _ = g.in.Close() } // an error means that it is closed

// Done is closed when the guard process has ended.
func (g *Guard) Done() <-chan struct{} { return g.done }

// Extend lets programs run until a time by CLOCK_BOOTTIME. It does not wait.
func (g *Guard) Extend(until time.Duration) {
	g.mu.Lock()
	g.until = until
	g.mu.Unlock()
	g.send(request{Op: opExtend, Until: until})
}

// check kills the guard process if it does not answer while programs run that must have ended, for
// example because a signal has stopped it.
func (g *Guard) check(stopTime time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-g.done:
			return
		}
		now := boottime.Now()
		g.mu.Lock()
		until, mustEnd, asked := g.until, len(g.programs) > 0 && now >= g.until, g.asked
		g.asked = mustEnd
		g.mu.Unlock()
		switch {
		case mustEnd && !asked:
			g.send(request{Op: opPing})
		case mustEnd && now >= until+stopTime:
			_ = g.process.Kill() // it has ended otherwise
			return
		}
		wait := boottime.Wait(until, now)
		if wait == 0 {
			wait = boottime.Wait(until+stopTime, now)
		}
		timer.Reset(cmp.Or(wait, time.Second))
	}
}

// Work runs the program for a virtual replica until ctx is canceled. It returns when no process of
// the program's group is left.
func (g *Guard) Work(ctx context.Context, r agent.Replica, ready func()) error {
	events := make(chan response, 2)
	g.mu.Lock()
	g.lastID++
	id := g.lastID
	g.programs[id] = events
	g.mu.Unlock()
	g.send(request{Op: opStart, ID: id, Env: environment(&r)})
	canceled := ctx.Done()
	for {
		select {
		case <-canceled:
			canceled = nil
			g.send(request{Op: opStop, ID: id})
		case e := <-events:
			if e.Event == eventEnded {
				return errors.New(e.Message) //nolint:err113 // the text is for people
			}
			ready()
		}
	}
}

// environment returns the environment variables of a virtual replica.
func environment(r *agent.Replica) []string {
	return []string{
		"PLACEMENT_API_VERSION=" + r.Resource.APIVersion,
		"PLACEMENT_KIND=" + r.Resource.Kind,
		"PLACEMENT_NAMESPACE=" + r.Resource.Namespace,
		"PLACEMENT_NAME=" + r.Resource.Name,
		"PLACEMENT_UID=" + string(r.Resource.UID),
		"PLACEMENT_INDEX=" + strconv.Itoa(int(r.Index)),
		"PLACEMENT_OF=" + strconv.Itoa(int(r.Of)),
		"PLACEMENT_EPOCH=" + strconv.FormatInt(r.Epoch, 10),
		"PLACEMENT_PAYLOAD=" + string(r.Payload),
	}
}

// send queues a request. It does not wait, whatever the guard process does.
func (g *Guard) send(r request) {
	g.mu.Lock()
	g.pending = append(g.pending, r)
	g.mu.Unlock()
	g.queue.Send()
}

// write sends the queued requests to the guard process.
func (g *Guard) write(in io.Writer) {
	lines := json.NewEncoder(in)
	for {
		select {
		case <-g.queue:
		case <-g.done:
			return
		}
		g.mu.Lock()
		next := g.pending
		g.pending = nil
		g.mu.Unlock()
		for _, r := range next {
			if err := lines.Encode(r); err != nil {
				return // the guard process has ended, and read notices that
			}
		}
	}
}

// read passes the responses of the guard process on.
func (g *Guard) read(out io.Reader) {
	lines := json.NewDecoder(out)
	for {
		var r response
		if err := lines.Decode(&r); err != nil {
			return
		}
		if r.Event == eventUp {
			close(g.up)
			continue
		}
		g.mu.Lock()
		if r.Event == eventPong {
			g.asked = false
		}
		events := g.programs[r.ID]
		if r.Event == eventEnded {
			delete(g.programs, r.ID)
		}
		g.mu.Unlock()
		if events != nil {
			events <- r // has room for both events of a program
		}
	}
}
