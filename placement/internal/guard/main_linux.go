package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopTime is the time between SIGTERM and SIGKILL while the Lease is renewed.
	stopTime = 5 * time.Second
	// lockPeriod is how often a guard checks whether the former one has ended.
	lockPeriod = 5 * time.Millisecond
	// sweepPeriod is how often it checks whether all processes of an ended program are gone.
	sweepPeriod = time.Millisecond
	// drainTime bounds how long the output of an ended program is read: a process that has left the
	// group may keep it open.
	drainTime = time.Second
	// maxLine bounds the lines of programs that are looked at; the rest of a longer one is a line
	// of its own.
	maxLine = 64 << 10
)

// process is the guard process. Its fields belong to the goroutine of run, except for responses.
type process struct {
	stopTime  time.Duration
	readyLine string
	command   []string

	until    int64 // CLOCK_MONOTONIC
	programs map[int64]*program
	ended    chan *program

	mu        sync.Mutex
	responses *json.Encoder
}

// program is a running program.
type program struct {
	id, killAt int64 // killAt is 0 until SIGTERM was sent
	cmd        *exec.Cmd
	killed     bool
	message    string // valid once it has ended

	mu     sync.Mutex
	reaped bool // another process group may have its id from now on
}

// signal sends a signal to the group of a program.
func (p *program) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, s) // it may have ended, which is as good
	}
}

// Main runs a guard process with the arguments after [Command] until its standard input ends, and
// all programs have.
func Main(args []string) error {
	if len(args) < 4 {
		return errors.New("the guard is started by the agent only")
	}
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
		programs: map[int64]*program{}, ended: make(chan *program), responses: json.NewEncoder(os.Stdout),
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
		case ended := <-p.ended:
			delete(p.programs, ended.id)
			go p.respond(response{Event: eventEnded, ID: ended.id, Message: ended.message})
		case <-timer.C:
		}
		now, err := monotonic()
		if err != nil {
			p.killAll()
			return err
		}
		if next := p.enforce(now); next > 0 {
			timer.Reset(time.Duration(next - now))
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
			if now, err := monotonic(); err == nil {
				program.terminate(now + int64(stopTime))
			}
		}
	}
}

func (p *process) killAll() {
	for _, program := range p.programs {
		program.kill()
	}
}

// enforce ends what may not run any longer. It returns when it must be called again, or 0.
func (p *process) enforce(now int64) (next int64) {
	sooner := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	last := p.until + int64(p.stopTime)
	for _, program := range p.programs {
		if now >= p.until {
			program.terminate(last)
		} else {
			sooner(p.until)
		}
		switch killAt := min(program.killAt, last); {
		case program.killed, program.killAt == 0:
		case now >= killAt:
			program.kill()
		default:
			sooner(killAt)
		}
	}
	return next
}

// terminate asks a program to end.
func (p *program) terminate(killAt int64) {
	if p.killAt == 0 {
		p.killAt = killAt
		p.signal(syscall.SIGTERM)
	}
}

func (p *program) kill() {
	if !p.killed {
		p.killed = true
		p.killAt = max(p.killAt, 1)
		p.signal(syscall.SIGKILL)
	}
}

// start starts a program.
func (p *process) start(r *request) {
	if now, err := monotonic(); err != nil || now >= p.until {
		go p.respond(response{Event: eventEnded, ID: r.ID, Message: "the Lease was not renewed in time"})
		return
	}
	output, to, err := os.Pipe()
	if err != nil {
		go p.respond(response{Event: eventEnded, ID: r.ID, Message: err.Error()})
		return
	}
	cmd := exec.Command(p.command[0], p.command[1:]...) //nolint:gosec,noctx // the program that people gave
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Stdout, cmd.Stderr = to, to
	cmd.SysProcAttr = programAttributes()
	err = cmd.Start()
	_ = to.Close() // the program has its own
	if err != nil {
		_ = output.Close() // nothing was written
		go p.respond(response{Event: eventEnded, ID: r.ID, Message: err.Error()})
		return
	}
	started := &program{id: r.ID, cmd: cmd}
	p.programs[r.ID] = started
	go p.follow(started, output)
}

// follow waits until a program has ended.
func (p *process) follow(program *program, output *os.File) {
	if p.readyLine == "" {
		p.respond(response{Event: eventReady, ID: program.id})
	}
	lastLine := make(chan string, 1)
	go func() { lastLine <- p.read(program.id, output) }()
	group := program.cmd.Process.Pid
	awaitExit(group)
	program.signal(syscall.SIGKILL) // what the program has left behind
	program.mu.Lock()
	program.reaped = true
	program.mu.Unlock()
	err := program.cmd.Wait()
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for exists(group) {
		_ = syscall.Kill(-group, syscall.SIGKILL) // a process may have started another one meanwhile
		reap(group)
		<-tick.C
	}
	_ = output.SetReadDeadline(time.Now().Add(drainTime)) // a pipe has deadlines
	program.message = message(<-lastLine, err)
	p.ended <- program
}

// message describes the end of a program.
func message(lastLine string, err error) string {
	state := "exit status 0"
	if err != nil {
		state = err.Error()
	}
	if lastLine == "" {
		return state
	}
	return lastLine + " (" + state + ")"
}

// read copies the lines of a program to the standard error, and returns the last one.
func (p *process) read(id int64, output *os.File) (last string) {
	defer func() { _ = output.Close() }() // nothing reads the rest
	ready := p.readyLine
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, _, err := lines.ReadLine()
		if err != nil {
			return last
		}
		text := string(line)
		_, _ = fmt.Fprintln(os.Stderr, text) // nothing can be done if it is closed
		if ready != "" && text == ready {
			ready = ""
			p.respond(response{Event: eventReady, ID: id})
		}
		if text = strings.TrimSpace(text); text != "" {
			last = text
		}
	}
}
