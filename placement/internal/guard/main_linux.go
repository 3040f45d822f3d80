package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"nodekeeper.dev/placement/internal/boottime"
)

const (
	// stopTime is the time between SIGTERM and SIGKILL while the Lease is renewed.
	stopTime = 5 * time.Second
	// lockPeriod is how often a guard checks whether the former one has ended.
	lockPeriod = 5 * time.Millisecond
)

// process is the guard process. Its fields belong to the goroutine of run, except for responses.
type process struct {
	stopTime  time.Duration
	readyLine string
	command   []string

	until    time.Duration // by package boottime
	programs map[int64]*program
	exited   chan *program // it has ended, and a process of its group has not
	ended    chan *program // all processes of its group have ended

	mu        sync.Mutex
	responses *json.Encoder
}

// Main runs a guard process with the arguments after [Command] until its standard input ends, and
// all programs have. A guard process uses it to start a program, too.
func Main(args []string) error {
	if len(args) > 2 && args[0] == modeLaunch {
		return launch(args[1], args[2:])
	}
	if len(args) < 5 || args[0] != modeGuard {
		return errors.New("the guard is started by the agent only")
	}
	args = args[1:]
	stop, err := time.ParseDuration(args[1])
	if err != nil {
		return fmt.Errorf("starting the guard: %w", err)
	}
	// Programs end with the thread that has started them, which is the main thread.
	runtime.LockOSThread()
	// The agent decides, by ending. Ignored signals would be ignored by the programs, too, so they
	// are caught instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	if err := adoptOrphans(); err != nil {
		return err
	}
	requests := make(chan request)
	go readRequests(os.Stdin, requests)
	p := &process{
		stopTime: stop, readyLine: args[2], command: args[3:],
		programs: map[int64]*program{}, exited: make(chan *program), ended: make(chan *program), responses: json.NewEncoder(os.Stdout),
	}
	lock, err := acquire(args[0], requests)
	if err != nil || lock == nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	p.respond(response{Event: eventUp})
	return p.run(requests)
}

// readRequests passes requests on until the agent ends.
func readRequests(in io.Reader, requests chan<- request) {
	defer close(requests)
	lines := json.NewDecoder(in)
	for {
		var r request
		if lines.Decode(&r) != nil {
			return
		}
		requests <- r
	}
}

// acquire waits until no other guard of the pod runs. The kernel releases the name with the last
// process that has it, which is the guard, as programs do not inherit it. It returns nil if the
// agent ends before; the agent sends nothing until the guard is up.
func acquire(pod string, requests <-chan request) (io.Closer, error) {
	tick := time.NewTicker(lockPeriod)
	defer tick.Stop()
	for {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", "@nodekeeper-placement/"+pod)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("waiting for the former guard: %w", err)
		}
		select {
		case <-requests:
			return nil, nil //nolint:nilnil // as documented
		case <-tick.C:
		}
	}
}

// respond sends a response. It may wait while the agent hangs, so only goroutines that end no
// program call it, except for the first response.
func (p *process) respond(r response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.responses.Encode(r) // the agent has ended, and the end of requests shows that
}

// run processes requests until the agent ends, and all programs have ended.
func (p *process) run(requests <-chan request) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for requests != nil || len(p.programs) > 0 {
		select {
		case r, ok := <-requests:
			if !ok {
				requests = nil
				p.killAll()
				continue
			}
			p.handle(&r)
		case program := <-p.exited:
			program.terminate(boottime.Now() + stopTime)
		case ended := <-p.ended:
			delete(p.programs, ended.id)
			go p.respond(response{Event: eventEnded, ID: ended.id, Message: ended.message})
		case <-timer.C:
		}
		now := boottime.Now()
		if next := p.enforce(now); next > 0 {
			timer.Reset(boottime.Wait(next, now))
		}
	}
	return nil
}

func (p *process) handle(r *request) {
	switch r.Op {
	case opExtend:
		p.until = r.Until
	case opStart:
		p.start(r)
	case opStop:
		if program := p.programs[r.ID]; program != nil {
			program.terminate(boottime.Now() + stopTime)
		}
	case opPing:
		go p.respond(response{Event: eventPong})
	}
}

func (p *process) killAll() {
	for _, program := range p.programs {
		program.kill()
	}
}

// enforce ends what may not run any longer. It returns when it must be called again, or 0.
func (p *process) enforce(now time.Duration) (next time.Duration) {
	sooner := func(at time.Duration) {
		if next == 0 || at < next {
			next = at
		}
	}
	last := p.until + p.stopTime
	for _, program := range p.programs {
		if now >= p.until {
			program.terminate(last)
		} else {
			sooner(p.until)
		}
		switch killAt := min(program.killAt, last); {
		case program.killed:
			program.kill() // again: a process may have joined the group
			sooner(now + time.Second)
		case program.killAt == 0:
		case now >= killAt:
			program.kill()
		default:
			sooner(killAt)
		}
	}
	return next
}

// start starts a program.
func (p *process) start(r *request) {
	program, err := p.launch(r)
	if err != nil {
		go p.respond(response{Event: eventEnded, ID: r.ID, Message: err.Error()})
		return
	}
	p.programs[r.ID] = program
	go p.follow(program)
}
