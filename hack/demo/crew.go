package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nodekeeper.dev/test/programs"
)

const (
	// readyTimeout is for one program.
	readyTimeout = 30 * time.Second
	// stopTimeout is longer than the five seconds in which the programs are to end.
	stopTimeout = 10 * time.Second
)

// crew is nodekeeper's processes. It belongs to one goroutine.
type crew struct {
	out        *screen
	kubeconfig string
	hired      map[string]int // how many of each program were started; numbers are not used again
	running    []*programs.Program
	gone       []*programs.Program // killed on purpose
}

// start starts programs, side by side, and returns when all are ready.
func (c *crew) start(ctx context.Context, names ...string) error {
	first := len(c.running)
	for _, name := range names {
		c.hired[name]++
		var args []string
		if name == "processor" {
			args = []string{"--save-delay=0"} // each step shows what is saved of the one before
		}
		p, err := programs.Start(name, fmt.Sprintf("%s-%d", name, c.hired[name]), c.kubeconfig, args...)
		if err != nil {
			return err
		}
		c.running = append(c.running, p)
	}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, p := range c.running[first:] {
		wg.Go(func() {
			if errs[i] = waitReady(ctx, p); errs[i] == nil {
				c.out.say(time.Now(), "demo", fmt.Sprintf("%-11s  is ready (process %d)", p.Identity, p.PID()))
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

// kill ends the process of that identity as kill -9 does and returns its process id.
func (c *crew) kill(identity string) (pid int, err error) {
	for i, p := range c.running {
		if p.Identity == identity {
			c.running = append(c.running[:i:i], c.running[i+1:]...)
			c.gone = append(c.gone, p)
			return p.PID(), p.Kill()
		}
	}
	return 0, fmt.Errorf("killing %s: no such process", identity)
}

// check returns an error if a process has ended by itself.
func (c *crew) check() error {
	for _, p := range c.running {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended by itself with exit code %d", p.Identity, p.ExitCode())
		default:
		}
	}
	return nil
}

// stop ends all processes, side by side, and waits for them.
func (c *crew) stop() error {
	running := c.running
	c.running = nil
	return programs.StopAll(running, stopTimeout)
}

// saveLogs writes what every process printed into a directory that stays, and says where.
func (c *crew) saveLogs() {
	dir, err := os.MkdirTemp("", "nodekeeper-demo-logs-")
	for _, p := range append(c.gone, c.running...) {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, p.Identity+".log"), []byte(p.Output()), 0o600))
	}
	if err != nil {
		c.out.note(fmt.Sprintf("The logs of the programs could not be kept: %v", err))
		return
	}
	c.out.note("The logs of the programs are in " + dir)
}
