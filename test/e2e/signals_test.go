package e2e_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/txn"
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

// TestWorkOfAKilledProcessorIsTakenOver kills a processor while it holds the lock of a node, just
// before its restore reaches the API server.
func TestWorkOfAKilledProcessorIsTakenOver(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.needsProxy()
	e.watcher()
	names := e.names(60)
	for _, name := range names {
		e.create(name, labelSet{"rack": name})
		e.delete(name)
	}
	for _, name := range names {
		e.recorded(e.create(name, nil).UID, txn.Added)
	}

	restores := newGate(restoresLabels)
	killed := e.start("processor", e.through(restores), "--workers=1")
	<-restores.arrived
	require.NoError(t, killed.Kill())
	locks := e.locks(t)
	require.Len(t, locks, 1)
	held := locks[0].Name
	require.Equal(t, killed.Identity, *locks[0].Spec.HolderIdentity)
	survivor := e.processor()

	for _, name := range names {
		e.restored(name, labelSet{"rack": name})
	}
	e.settle()
	for _, name := range names {
		e.hasRestored(t, name, labelSet{"rack": name})
	}
	assert.True(t, slices.ContainsFunc(loggedMessages(survivor, "Restored labels"), func(line map[string]any) bool {
		return line["node"] == held
	}), "%s took over node %s", survivor.Identity, held)
}

func restoresLabels(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/api/v1/nodes/")
}
