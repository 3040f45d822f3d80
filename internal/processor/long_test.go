package processor_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
)

// B5: the work for a long queue of one node is linear in its length, not quadratic. The test
// measures bytes, since time depends on the load of the machine. It is not parallel because the
// bytes are those of the whole process.
func TestLongQueueTakesLinearWork(t *testing.T) {
	short, long := drained(t, 250), drained(t, 1000)
	t.Logf("bytes allocated: %d for 250 transactions, %d for 1000", short, long)
	assert.Less(t, long, 6*short)
}

// drained returns the number of bytes that are allocated while a processor drains the queue of one
// node.
func drained(t *testing.T, count int) uint64 {
	t.Helper()
	c := newCluster(t)
	node := c.name("node")
	for i := range count {
		c.put(t, event(txn.Updated, node, "a", strconv.Itoa(1_000_000+i), set{"rack": strconv.Itoa(i)}))
	}
	before := allocated()
	stop := c.process(t, setup{})
	// Limit the list of the queue, so that this check costs little itself.
	require.Eventually(t, func() bool {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		err := c.List(t.Context(), list, client.InNamespace(c.transactions), client.MatchingLabels(txn.NodeLabels(node)), client.Limit(1))
		return err == nil && len(list.Items) == 0
	}, patience, 10*tick)
	stop()
	assert.Equal(t, set{"rack": strconv.Itoa(count - 1)}, c.record(t, node).Labels)
	return allocated() - before
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}
