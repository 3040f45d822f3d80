package e2e_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/watcher"
)

// TestWatcherThatStoodStillLosesNothing freezes the only watcher for longer than the others would
// wait for it, while nodes are edited and deleted. Its watch goes on to hold everything, so every
// node returns with its last labels.
func TestWatcherThatStoodStillLosesNothing(t *testing.T) {
	t.Parallel()
	for name, returnsMeanwhile := range map[string]bool{"the nodes are back by then": true, "the nodes return later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.processor()
			w := e.start("watcher", e.kubeconfig)
			e.ready(w)
			var nodes []string
			for i := range 10 {
				nodes = append(nodes, e.name("node-"+strconv.Itoa(i)))
				e.create(nodes[i], labelSet{"team": "blue"})
			}
			for _, node := range nodes {
				e.saved(node, labelSet{"team": "blue"})
			}

			require.NoError(t, syscall.Kill(w.PID(), syscall.SIGSTOP))
			t.Cleanup(func() { _ = syscall.Kill(w.PID(), syscall.SIGCONT) }) // it must be able to end
			for _, node := range nodes {
				e.set(node, "team", "red")
				e.delete(node)
				if returnsMeanwhile {
					e.create(node, labelSet{})
				}
			}
			time.Sleep(watcher.DefaultSilence + 2*time.Second)
			require.NoError(t, syscall.Kill(w.PID(), syscall.SIGCONT))
			for _, node := range nodes {
				if !returnsMeanwhile {
					e.create(node, labelSet{})
				}
			}
			for _, node := range nodes {
				e.restored(node, labelSet{"team": "red"})
			}
			e.settle()
			for _, node := range nodes {
				e.hasRestored(t, node, labelSet{"team": "red"})
			}
		})
	}
}
