package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestMalformedTransactionHoldsUpItsNodeOnlyUntilItIsQuarantined has a watcher with an event whose
// transaction a user has broken. Another watcher that starts must record all other nodes, and
// nothing of this node is lost.
func TestMalformedTransactionHoldsUpItsNodeOnlyUntilItIsQuarantined(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	first := e.watcher()
	node, other := e.name("node"), e.name("other")
	e.create(node, labelSet{"rack": "r7"})
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queue(c, node), 1) }, "the node is recorded")
	broken := e.queue(t, node)[0]
	body := []byte(`{"metadata":{"annotations":{"nodekeeper.dev/uid":null}}}`)
	require.NoError(t, e.client.Patch(t.Context(), &broken, client.RawPatch(types.MergePatchType, body)))
	e.stop(first)

	second := e.watcher()
	e.set(node, "late", "yes")
	e.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, logged(second, "Waiting until the name of a transaction is free"))
	}, "the watcher needs the name")
	e.watcher()
	e.create(other, labelSet{"rack": "r8"})
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queue(c, other), 1) }, "another node is recorded")

	e.processor()
	assert.Contains(t, e.warned(e.quarantined(&broken).UID, "TransactionMalformed"), "uid is missing")
	e.saved(node, labelSet{"rack": "r7", "late": "yes"})
	e.saved(other, labelSet{"rack": "r8"})
	e.delete(node)
	e.create(node, nil)
	e.restored(node, labelSet{"rack": "r7", "late": "yes"})
	e.settle()
}

// TestUnreadableRecordAndAGapHoldUpTheirNodeOnly has a watcher that needs the name of a transaction
// that waits until its record is corrected.
func TestUnreadableRecordAndAGapHoldUpTheirNodeOnly(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.needsProxy()
	p, path := e.faultProxy()
	w := e.start("watcher", path)
	e.ready(w)
	e.processor()
	node, other := e.name("node"), e.name("other")
	e.applied(e.create(node, labelSet{"team": "blue"}))
	version := e.saved(node, labelSet{"team": "blue"}).Revision
	e.editRecord(node, map[string]string{"labels_restored": "nonsense"})
	e.set(node, "team", "red")
	e.eventually(func(c *assert.CollectT) { assert.Len(c, e.queue(c, node), 1) }, "the change waits for the record")

	duringGap(p, func() {
		e.delete(node)
		e.create(node, labelSet{})
	})
	e.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, logged(w, "Waiting until the name of a transaction is free"))
	}, "the end that it missed needs the name of the change")
	e.set(node, "edited", "early") // an event that it has observed, and cannot store
	e.watcher()
	e.create(other, labelSet{"rack": "r8"})
	e.saved(other, labelSet{"rack": "r8"})

	e.editRecord(node, map[string]string{"labels_restored": version.String()})
	e.restored(node, labelSet{"team": "red", "edited": "early"})
	e.set(node, "late", "yes")
	e.saved(node, labelSet{"team": "red", "edited": "early", "late": "yes"})
	e.settle()
}
