package story

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"nodekeeper.dev/test/programs"
)

const (
	// readyTimeout is for one program.
	readyTimeout = 30 * time.Second
	// stopTimeout is longer than the five seconds in which the programs must end.
	stopTimeout = 10 * time.Second
)

// Crew is the processes of a demo. It belongs to one goroutine.
type Crew struct {
	Out *Screen

	running []*programs.Program
	gone    []*programs.Program // killed or stopped on purpose
}

// Add takes charge of programs.
func (c *Crew) Add(all ...*programs.Program) { c.running = append(c.running, all...) }

// WaitReady returns when all of these programs are ready.
func (c *Crew) WaitReady(ctx context.Context, all ...*programs.Program) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			if errs[i] = waitReady(ctx, p); errs[i] == nil {
				c.Out.Say(time.Now(), "demo", fmt.Sprintf("%-11s  is ready (process %d)", p.Identity, p.PID()))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func waitReady(ctx context.Context, p *programs.Program) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.WaitReady(ctx)
}

// Running returns the programs that run.
func (c *Crew) Running() []*programs.Program { return slices.Clone(c.running) }

// Kill ends the process of that identity as kill -9 does and returns its process id.
func (c *Crew) Kill(identity string) (pid int, err error) {
	p, err := c.Release(identity)
	if err != nil {
		return 0, err
	}
	return p.PID(), p.Kill()
}

// Release returns the program of that identity, which may end from now on.
func (c *Crew) Release(identity string) (*programs.Program, error) {
	i := slices.IndexFunc(c.running, func(p *programs.Program) bool { return p.Identity == identity })
	if i < 0 {
		return nil, fmt.Errorf("ending %s: no such process", identity)
	}
	p := c.running[i]
	c.running = slices.Delete(c.running, i, i+1)
	c.gone = append(c.gone, p)
	return p, nil
}

// Check returns an error if a process has ended by itself.
func (c *Crew) Check() error {
	for _, p := range c.running {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended by itself with exit code %d", p.Identity, p.ExitCode())
		default:
		}
	}
	return nil
}

// Stop ends all processes, side by side, and waits for them. Those that were released are killed if they still run.
func (c *Crew) Stop() error {
	running := c.running
	c.running = nil
	err := programs.StopAll(running, stopTimeout)
	for _, p := range c.gone {
		err = errors.Join(err, p.Kill())
	}
	return err
}

// SaveLogs writes what every process printed into a directory that stays, and says where.
func (c *Crew) SaveLogs() {
	dir, err := os.MkdirTemp("", "nodekeeper-demo-logs-")
	for _, p := range slices.Concat(c.gone, c.running) {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, p.Identity+".log"), []byte(p.Output()), 0o600))
	}
	if err != nil {
		c.Out.Note(fmt.Sprintf("The logs of the programs could not be kept: %v", err))
		return
	}
	c.Out.Note("The logs of the programs are in " + dir)
}
