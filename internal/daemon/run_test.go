package daemon_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
)

// fakeManager is a manager that only starts.
type fakeManager struct {
	manager.Manager

	start func(context.Context) error
}

func (m fakeManager) Start(ctx context.Context) error { return m.start(ctx) }

func TestRunReturnsWithTheManager(t *testing.T) {
	require.NoError(t, daemon.Run(t.Context(), fakeManager{start: func(context.Context) error { return nil }}))
	require.ErrorContains(t,
		daemon.Run(t.Context(), fakeManager{start: func(context.Context) error { return errors.New("broken") }}),
		"running the service: broken")
	require.ErrorContains(t,
		daemon.Run(t.Context(), fakeManager{start: func(context.Context) error { return syscall.EADDRINUSE }}),
		"give another --metrics-bind-address")
}

func TestRunWaitsForTheManagerToDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		drained := false
		mgr := fakeManager{start: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(4 * time.Second) // the graceful shutdown timeout
			drained = true
			return nil
		}}
		time.AfterFunc(time.Hour, cancel)
		require.NoError(t, daemon.Run(ctx, mgr))
		assert.True(t, drained)
	})
}

// controller-runtime v0.25.2 does not end if it is cancelled and its caches never sync.
func TestRunEndsEvenIfManagerDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		never := make(chan struct{})
		defer close(never) // every goroutine of a bubble must end
		mgr := fakeManager{start: func(context.Context) error { <-never; return nil }}
		cancel()
		start := time.Now()
		require.NoError(t, daemon.Run(ctx, mgr))
		assert.Less(t, time.Since(start), 5*time.Second)
	})
}
