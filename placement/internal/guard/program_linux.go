package guard

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"nodekeeper.dev/placement/internal/boottime"
)

const (
	// minSweepPeriod and maxSweepPeriod bound how often the guard checks whether the other
	// processes of a program that has ended are gone.
	minSweepPeriod, maxSweepPeriod = time.Millisecond, 50 * time.Millisecond
	// drainTime bounds how long the output of an ended program is read: a process that has left the
	// group may keep it open.
	drainTime = time.Second
	// maxLine bounds the lines of programs that are looked at; the rest of a longer one is a line
	// of its own.
	maxLine = 64 << 10
)

// program is a running program.
type program struct {
	id      int64
	cmd     *exec.Cmd
	output  *os.File // what it writes
	started *os.File // ends when it has started, or has why it has not

	// killAt is 0 until SIGTERM was sent. It and killed belong to the goroutine of process.run.
	killAt time.Duration
	killed bool

	message string // valid once it has ended

	mu   sync.Mutex
	gone bool // no process of its group is left, so another one may have its id
}

// launch starts a process that becomes the program. A start may take as long as a file system
// hangs, and would stop all of this process meanwhile, because Go starts a process by vfork.
func (p *process) launch(r *request) (started *program, err error) {
	if boottime.Now() >= p.until {
		return nil, errors.New("the Lease was not renewed in time")
	}
	output, to, err := os.Pipe()
	if err != nil {
		return nil, err //nolint:wrapcheck // a message for people
	}
	defer func() { _ = to.Close() }() // the program has its own
	start, toStart, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	defer func() { _ = toStart.Close() }()                                                                                   // as above
	cmd := exec.Command("/proc/self/exe", append([]string{Command, modeLaunch, strconv.Itoa(os.Getpid())}, p.command...)...) //nolint:gosec,noctx // the program that people gave
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = to, to, []*os.File{toStart}
	cmd.SysProcAttr = programAttributes()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, output.Close(), start.Close())
	}
	return &program{id: r.ID, cmd: cmd, output: output, started: start}, nil
}

// signal sends a signal to the group of a program.
func (p *program) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = syscall.Kill(-p.cmd.Process.Pid, s) // it may have ended, which is as good
	}
}

// terminate asks a program to end.
func (p *program) terminate(killAt time.Duration) {
	if p.killAt == 0 {
		p.killAt = max(killAt, 1)
		p.signal(syscall.SIGTERM)
	}
}

func (p *program) kill() {
	p.killed, p.killAt = true, max(p.killAt, 1)
	p.signal(syscall.SIGKILL)
}

// isGone reports whether no process of the program is left.
func (p *program) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	reap(p.cmd.Process.Pid)
	p.gone = !exists(p.cmd.Process.Pid)
	return p.gone
}

// wait waits until a program has ended, and reports whether no process of its group is left. Before
// that, the group has its id for sure.
func (p *program) wait() (isGone bool, err error) {
	awaitExit(p.cmd.Process.Pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.cmd.Wait()
	p.gone = !exists(p.cmd.Process.Pid)
	return p.gone, err //nolint:wrapcheck // a message for people
}

// follow waits until a program and all processes of its group have ended.
func (p *process) follow(program *program) {
	lastLine := make(chan string, 1)
	go func() { lastLine <- p.read(program.id, program.output) }()
	reason := program.awaitStart()
	if reason == "" && p.readyLine == "" {
		p.respond(response{Event: eventReady, ID: program.id})
	}
	isGone, err := program.wait()
	if !isGone {
		p.exited <- program // the others have as much time to end as the program
		for pause := minSweepPeriod; !program.isGone(); pause = min(2*pause, maxSweepPeriod) {
			<-time.After(pause)
		}
	}
	_ = program.output.SetReadDeadline(time.Now().Add(drainTime)) // a pipe has deadlines
	select {
	case line := <-lastLine:
		program.message = message(cmp.Or(reason, line), err)
	case <-time.After(2 * drainTime): // the standard error of the guard hangs
		program.message = message(reason, err)
	}
	p.ended <- program
}

// awaitStart waits until a program has started. It returns why it has not, or an empty text.
func (p *program) awaitStart() string {
	defer func() { _ = p.started.Close() }() // it was read
	reason, _ := io.ReadAll(io.LimitReader(p.started, maxLine))
	return string(reason)
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
