package service_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/service"
)

// fakeServer notes what it was told.
type fakeServer struct{ told []bool }

var _ service.Server = (*fakeServer)(nil)

func (s *fakeServer) SetServing(serving bool) { s.told = append(s.told, serving) }

func TestMemberServesWhileAllChecksSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		problem, member := errors.New("no certificate"), &fakeServer{}
		checks := []func(*http.Request) error{
			func(*http.Request) error { return problem },
			func(*http.Request) error { return nil },
		}
		go func() { assert.NoError(t, service.ServeWhile(member, checks[0], checks[1]).Start(ctx)) }()
		for _, step := range []struct {
			problem error
			told    []bool
		}{
			{problem, nil},
			{nil, []bool{true}},
			{nil, []bool{true}}, // nothing has changed
			{problem, []bool{true, false}},
			{nil, []bool{true, false, true}},
		} {
			problem = step.problem
			time.Sleep(3 * time.Second)
			synctest.Wait()
			assert.Equal(t, step.told, member.told)
		}
	})
}
