package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // envtest's
	os.Exit(m.Run())
}

// maxWrites is how many writes nodekeeper may need for a node that is deleted and comes back. It is to be lowered with them, and
// never to be raised.
var maxWrites = map[int]float64{1: 11.5, 3: 12.5}

// TestWritesDoNotGrow counts what the API server answers while nodes are deleted and come back.
func TestWritesDoNotGrow(t *testing.T) {
	const nodes = 100
	for replicas, bound := range maxWrites {
		out := &strings.Builder{}
		r := &report{out: out}
		require.NoError(t, measure(t.Context(), r, &options{nodes: nodes, replicas: []int{replicas}}, replicas))
		writes, ok := r.value("writes per node")
		require.True(t, ok)
		assert.GreaterOrEqual(t, writes, 7.0, "the least that the design needs: less was not counted")
		assert.LessOrEqual(t, writes, bound, "with %d of each program:\n%s", replicas, out)
	}
}

func TestCallsSinceLeaveOutTheUsers(t *testing.T) {
	before := calls{{"nodes", "PATCH"}: 1, {"configmaps", "POST"}: 2}
	after := calls{{"nodes", "PATCH"}: 3, {"configmaps", "POST"}: 2, {"nodes", "POST"}: 5, {"nodes", "DELETE"}: 5, {"leases", "GET"}: 4}
	delta := after.since(before)
	assert.Equal(t, calls{{"nodes", "PATCH"}: 2, {"leases", "GET"}: 4}, delta)
	assert.InDelta(t, 2, delta.writes(), 0)
	assert.InDelta(t, 4, delta.reads(), 0)
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	assert.EqualValues(t, 50, percentile(hundred, 50))
	assert.EqualValues(t, 99, percentile(hundred, 99))
	assert.EqualValues(t, 100, percentile(hundred, 100))
	assert.EqualValues(t, 1, percentile(hundred[:1], 50))
}
