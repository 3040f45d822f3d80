package plugin_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// TestStatusOfALongQueue checks that a queue that a processor applies late is not called stuck, and
// that the same queue is stuck while no processor applies it.
func TestStatusOfALongQueue(t *testing.T) {
	const long = 300
	e := newEnvOf(t, ownPlane(t))
	door := &queue.Queue{Client: e.client, Namespace: e.transactions}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(manyRunning)
	for i := range long {
		group.Go(func() error {
			return door.Put(ctx, txn.Transaction{
				Type: txn.Updated, Node: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), Revision: revision.Of("7"),
				Labels: set{"a": "1"}, ObservedAt: time.Now().Add(-time.Minute),
			})
		})
	}
	require.NoError(t, group.Wait())
	status := func() (catchesUp bool, pending int, isStuck bool) {
		fields := strings.Split(e.run("status", "--stuck-after=1ms", "-o", "jsonpath={.pending.catchingUp},{.pending.nodes},{.stuck[*].name}").stdout, ",")
		require.Len(t, fields, 3)
		pending, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		return fields[0] == "true", pending, fields[2] != ""
	}
	var catchesUp, isStuck bool
	var pending int
	require.Eventually(t, func() bool { // the API server's times have seconds
		catchesUp, pending, isStuck = status()
		return isStuck
	}, patience, period)
	assert.False(t, catchesUp)
	assert.Positive(t, pending)

	e.start("processor", "--workers=1")
	seen, looked := 0, 0
	for deadline := time.Now().Add(patience); pending > 0 && time.Now().Before(deadline); {
		catchesUp, pending, isStuck = status()
		if 0 < pending && pending < long {
			looked++
		}
		if catchesUp {
			seen++
			assert.False(t, isStuck, "the queue is being applied")
		}
	}
	require.Zero(t, pending)
	if looked > 2 { // and not too late, on a busy machine
		assert.Positive(t, seen, "it is seen while the processor catches up")
	}
	assert.False(t, catchesUp, "nothing is pending")
	assert.False(t, isStuck)
}
