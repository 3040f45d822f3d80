package ring_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/sharding/shardlease"
	"nodekeeper.dev/sharding/shardlease/leasetest"
)

// replica is a member with a client of its own.
type replica struct {
	*ring.Member
	*leasetest.Client

	leave func() // stops it and waits until it has stopped
}

// die ends it like kill -9.
func (r *replica) die() {
	r.Set(leasetest.Down)
	r.leave()
}

// join starts a member of the default duration, which stops at the end of the test.
func join(t *testing.T, s *leasetest.Server, name string) *replica {
	t.Helper()
	c := s.Client()
	m := ring.New(ring.Config{
		Config: shardlease.Config{Client: c, Namespace: "default", Name: name}, GroupLabel: label, Group: "web",
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	leave := func() {
		if ctx.Err() == nil {
			cancel()
			assert.NoError(t, <-ended)
		}
	}
	t.Cleanup(leave)
	synctest.Wait()
	return &replica{Member: m, Client: c, leave: leave}
}
