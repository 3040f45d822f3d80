package programs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kept is a program that is started again whenever it ends, as by a kubelet: on a busy machine, for
// example, a leader may lose its Lease and exit. It is safe for concurrent use.
type Kept struct {
	start   func() (*Program, error)
	restart sync.WaitGroup

	mu sync.Mutex
	// processes are all that were started, the running one last.
	processes []*Program
	isOver    bool
	err       error // from starting it again
}

// Keep starts a program and keeps it running until Stop or Kill is called, one of which must be.
func Keep(start func() (*Program, error)) (*Kept, error) {
	first, err := start()
	if err != nil {
		return nil, err
	}
	k := &Kept{start: start, processes: []*Program{first}}
	k.restart.Go(k.run)
	return k, nil
}

// run starts a process whenever one has ended, until the program is over.
func (k *Kept) run() {
	for {
		<-k.Last().Done()
		<-time.After(readyPeriod) // a process that ends at once must not take the whole machine
		if !k.again() {
			return
		}
	}
}

// again starts a process unless the program is over.
func (k *Kept) again() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isOver {
		return false
	}
	p, err := k.start()
	if err != nil {
		k.err = err
		return false
	}
	k.processes = append(k.processes, p)
	return true
}

// Last returns the process that was started last.
func (k *Kept) Last() *Program {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.processes[len(k.processes)-1]
}

// WaitReady waits until the program is ready, whichever of its processes that is.
func (k *Kept) WaitReady(ctx context.Context) error {
	for {
		err := k.Last().WaitReady(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(readyPeriod)
	}
}

// Stop ends the program with SIGTERM, as [Program.Stop] does.
func (k *Kept) Stop(timeout time.Duration) error {
	return k.end(func(p *Program) error { return p.Stop(timeout) })
}

// Kill ends the program with SIGKILL.
func (k *Kept) Kill() error { return k.end((*Program).Kill) }

func (k *Kept) end(by func(*Program) error) error {
	k.mu.Lock()
	k.isOver = true
	err := errors.Join(k.err, by(k.processes[len(k.processes)-1]))
	k.mu.Unlock()
	k.restart.Wait()
	return err
}

// Output returns the output of all its processes.
func (k *Kept) Output() string {
	var all strings.Builder
	for _, p := range k.Processes() {
		all.WriteString(p.Output())
	}
	return all.String()
}

// Processes returns all processes that were started, the one that was started last at the end.
func (k *Kept) Processes() []*Program {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.processes)
}
