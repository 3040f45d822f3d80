package e2e_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/watcher"
)

// TestPausedWatcherLosesNothing freezes the only watcher for longer than others would wait for it,
// while nodes are edited and deleted. Its watch buffers every event, so every node returns with its
// last labels.
func TestPausedWatcherLosesNothing(t *testing.T) {
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

			e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queued(c)) }, "everything is applied")
			require.NoError(t, w.Freeze(t.Context()))
			t.Cleanup(func() { assert.NoError(t, w.Signal(syscall.SIGCONT)) }) // so that it can end
			for _, node := range nodes {
				e.set(node, "team", "red")
				e.delete(node)
				if returnsMeanwhile {
					e.create(node, labelSet{})
				}
			}
			// A frozen program changes nothing that could be waited for: the test is about this time.
			time.Sleep(watcher.DefaultSilence + 2*time.Second)
			require.Empty(t, e.queued(t), "it is frozen")
			require.NoError(t, w.Signal(syscall.SIGCONT))
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
