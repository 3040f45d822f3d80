package e2e_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOversizeLabelsAreReportedAndBlockNoNode(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	address := freeAddress(t)
	w := e.watcher("--metrics-bind-address=" + address)
	e.processor()
	// This exceeds the 1 MiB limit for the values of a ConfigMap, with keys so short that the Node
	// itself stays below etcd's limit of 1.5 MiB.
	huge := labelSet{}
	for i := range 1<<20/63 + 100 {
		huge[strconv.FormatInt(int64(i), 36)] = strings.Repeat("x", 63)
	}
	node, other := e.name("node"), e.name("other")

	first := e.create(node, huge)

	assert.Contains(t, e.warned(first.UID, "LabelsTooLarge"), "1048576 bytes")
	e.delete(node)
	e.eventually(func(c *assert.CollectT) {
		assert.InDelta(c, 2, e.metric(c, address, "nodekeeper_transactions_too_large_total"), 0)
	}, "the add and the delete are counted")
	assert.NotEmpty(t, complaints(w, node))

	// The node recovers, and other nodes are never affected.
	want := labelSet{"rack": "r7"}
	for _, name := range []string{node, other} {
		e.create(name, want)
		e.delete(name)
		e.create(name, nil)
		e.restored(name, want)
	}
	e.settle()
}
