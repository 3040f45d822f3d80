package program

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// candidate is a sharder with leader election. If it ends by itself, it is started again, as
// Kubernetes does: on a busy machine it may fail to renew its Lease in time. It is safe for
// concurrent use.
type candidate struct {
	cluster  *cluster
	identity string

	mu sync.Mutex
	// processes are all that were started, the running one last.
	processes []*programs.Program
	isOver    bool
}

// candidate starts a candidate, which ends with the test, and waits until it is ready.
func (c *cluster) candidate(identity string) *candidate {
	c.t.Helper()
	s := &candidate{cluster: c, identity: identity}
	require.NoError(c.t, s.start())
	var watch sync.WaitGroup
	watch.Go(s.startAgain)
	c.t.Cleanup(func() {
		assert.NoError(c.t, s.end(func(p *programs.Program) error { return p.Stop(stopTimeout) }))
		watch.Wait()
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", identity, s.Output())
		}
	})
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		err := s.last().WaitReady(ctx)
		if err == nil {
			return s
		}
		if ctx.Err() != nil {
			require.NoError(c.t, err)
		}
		time.Sleep(period)
	}
}

// start starts a process unless the candidate is over.
func (s *candidate) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return nil
	}
	p, err := programs.Start("sharder", s.identity, s.cluster.kubeconfig)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return err
}

// startAgain starts a process whenever one has ended, until the candidate is over.
func (s *candidate) startAgain() {
	for {
		ended := s.last()
		<-ended.Done()
		time.Sleep(period)
		if !assert.NoError(s.cluster.t, s.start()) || s.last() == ended {
			return
		}
	}
}

func (s *candidate) last() *programs.Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[len(s.processes)-1]
}

// end ends the candidate by ending its process.
func (s *candidate) end(by func(*programs.Program) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOver = true
	return by(s.processes[len(s.processes)-1])
}

// Kill ends the candidate like kill -9.
func (s *candidate) Kill() error { return s.end((*programs.Program).Kill) }

// Output returns the logs of all its processes.
func (s *candidate) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all strings.Builder
	for _, p := range s.processes {
		all.WriteString(p.Output())
	}
	return all.String()
}

// ended returns the processes that have ended by themselves.
func (s *candidate) ended() []*programs.Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.processes), func(p *programs.Program) bool {
		select {
		case <-p.Done():
			return false
		default:
			return true
		}
	})
}
