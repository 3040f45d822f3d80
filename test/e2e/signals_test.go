package e2e_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/programs"
)

func TestProgramsEndAmidWorkOnASignal(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for range 2 {
		e.watcher()
		e.processor()
	}
	names := e.names(30)
	for _, name := range names {
		e.create(name, labelSet{"rack": name})
	}
	for _, name := range names {
		e.saved(name, labelSet{"rack": name})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() { e.churn(ctx, names) })
	defer churn.Wait()
	defer cancel()
	e.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, e.locks(c)) }, "there is work")

	var stops sync.WaitGroup
	for _, p := range e.programs {
		stops.Go(func() {
			if assert.NoError(t, p.Stop(stopTimeout)) {
				assert.Equal(t, 0, p.ExitCode(), "exit code of %s", p.Identity)
			}
		})
	}
	stops.Wait()
	assert.Empty(t, e.locks(t), "whoever ends releases its locks")
	cancel()
	churn.Wait()

	e.watcher()
	e.processor()
	for _, name := range names {
		e.restored(name, labelSet{"rack": name})
	}
	e.settle()
}

// churn replaces one node after another until ctx is cancelled, and leaves all of them live.
func (e *env) churn(ctx context.Context, names []string) {
	live := context.WithoutCancel(ctx)
	for i := 0; ctx.Err() == nil || i%len(names) != 0; i++ {
		meta := metav1.ObjectMeta{Name: names[i%len(names)]}
		assert.NoError(e.t, e.client.Delete(live, &corev1.Node{ObjectMeta: meta}))
		assert.NoError(e.t, e.client.Create(live, &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Unschedulable: true}}))
	}
}

func TestWorkOfAKilledProcessorIsTakenOver(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	names := e.names(60)
	for _, name := range names {
		e.create(name, labelSet{"rack": name})
		e.delete(name)
	}
	for _, name := range names {
		e.recorded(e.create(name, nil).UID, txn.Added)
	}

	killed, held := e.killAmidWork()
	survivor := e.processor()

	for _, name := range names {
		e.restored(name, labelSet{"rack": name})
	}
	e.settle()
	for _, name := range names {
		e.hasRestored(t, name, labelSet{"rack": name})
	}
	t.Logf("%s was killed while it held %s", killed.Identity, held)
	done := false
	for _, line := range append(loggedMessages(survivor, "Restored labels"), loggedMessages(survivor, "Saved labels")...) {
		done = done || line["node"] == held
	}
	assert.True(t, done, "%s took over node %s", survivor.Identity, held)
}

// killAmidWork starts a processor, kills it while it holds the lock of a node that has
// transactions, and returns it and the node.
func (e *env) killAmidWork() (killed *programs.Program, held string) {
	e.t.Helper()
	for range 10 {
		p := e.start("processor", e.kubeconfig, "--workers=1")
		require.EventuallyWithT(e.t, func(c *assert.CollectT) { assert.NotEmpty(c, e.locks(c)) }, patience, 2*time.Millisecond)
		require.NoError(e.t, p.Signal(syscall.SIGSTOP))
		for _, lock := range e.locks(e.t) {
			// One request can be in flight: with two transactions left, it is not the release of
			// the lock.
			if *lock.Spec.HolderIdentity == p.Identity && len(e.queue(e.t, lock.Name)) > 1 {
				require.NoError(e.t, p.Kill())
				return p, lock.Name
			}
		}
		require.NoError(e.t, p.Signal(syscall.SIGCONT))
		e.stop(p)
	}
	require.Fail(e.t, "no processor could be caught at work")
	return nil, ""
}
