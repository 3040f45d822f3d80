package processor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/processor/protection"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// A3: a watcher runs, but no processor. New nodes join and are labelled. They are deleted at once,
// as they do not have the finalizer yet; they return, get the finalizer, and are deleted again,
// which now waits. Their return has not been recorded. When a processor starts, it must save the
// labels of the first incarnation, which the second never got.
func TestProtectionDoesNotOvertakeTheQueue(t *testing.T) {
	// Not in parallel: a processor that protects nodes protects those of every test.
	for name, known := range map[string]func(node string) *record.Record{
		"unknown": func(string) *record.Record { return nil },
		"forgotten": func(node string) *record.Record {
			return &record.Record{Node: node, Revision: revision.MustParse("1"), Floor: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			var names []string
			for i := range 3 {
				name := c.name(fmt.Sprintf("node-%d", i))
				names = append(names, name)
				if r := known(name); r != nil {
					c.save(t, *r)
				}
				c.twoLives(t, name)
			}
			c.process(t, setup{protects: true, saveDelay: time.Hour}) // so that the queue is not drained first by chance
			for _, name := range names {
				c.waitGone(t, name)
				assert.Equal(t, "blue", c.record(t, name).Labels["team"], name)
			}
		})
	}
}

// twoLives creates a node that was deleted with labels, and whose second incarnation is being
// deleted before they are restored.
func (c *cluster) twoLives(t *testing.T, name string) {
	t.Helper()
	first := c.addNode(t, name, set{"team": "none"})
	c.edit(t.Context(), t, first, func(n *corev1.Node) { n.Labels = set{"team": "blue"} })
	c.put(t, seen(txn.Updated, first))
	c.deleteNode(t.Context(), t, first)
	c.put(t, seen(txn.Deleted, first))
	second := c.addNode(t, name, nil)
	c.edit(t.Context(), t, second, func(n *corev1.Node) { n.Finalizers = []string{protection.Finalizer} })
	c.delete(t, name)
}
