package service_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/service"
)

// fakeServer records the calls of SetServing. It has a check that fails with a problem. The passing
// of time in a bubble does not order the actions of its goroutines.
type fakeServer struct {
	mu       sync.Mutex
	reported []bool
	problem  error
}

var _ service.Server = (*fakeServer)(nil)

func (s *fakeServer) SetServing(serving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = append(s.reported, serving)
}

func (s *fakeServer) check(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

func (s *fakeServer) set(problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = problem
}

// history returns the calls so far.
func (s *fakeServer) history() []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reported)
}

func TestMemberServesWhileAllChecksSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		problem := errors.New("no certificate")
		member := &fakeServer{problem: problem}
		succeeds := func(*http.Request) error { return nil }
		go func() { assert.NoError(t, service.ServeWhile(member, member.check, succeeds).Start(ctx)) }()
		for _, step := range []struct {
			problem  error
			reported []bool
		}{
			{problem, nil},
			{nil, []bool{true}},
			{nil, []bool{true}}, // nothing has changed
			{problem, []bool{true, false}},
			{nil, []bool{true, false, true}},
		} {
			member.set(step.problem)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			assert.Equal(t, step.reported, member.history())
		}
	})
}
