package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard()) // the logger of envtest
	os.Exit(m.Run())
}

// bounds are the maximum numbers of requests per node that is deleted and recreated. Lower them
// whenever possible, and never raise them. The design needs at least eight writes, one of which
// gives the restored labels back to their field managers. Each run over a queue takes two requests
// for its lock.
//
// Requests whose number depends on time are not bounded: renewals of Leases, which are updates,
// lists of Leases, and Normal events, which are rate limited.
var bounds = []struct {
	what         string
	kinds        []call
	least, limit float64
}{
	{"transactions, records and Nodes", []call{
		{"configmaps", "POST"}, {"configmaps", "PUT"}, {"configmaps", "PATCH"}, {"configmaps", "DELETE"}, {"nodes", "PATCH"},
	}, 8, 8.5},
	{"locks", []call{{"leases", "POST"}, {"leases", "DELETE"}}, 1, 2.25},
	{"reads of one object", []call{{"nodes", "GET"}, {"configmaps", "GET"}, {"leases", "GET"}}, 1, 1.25},
}

// attempts bounds the repetitions until no count exceeds its bound. A busy machine can only add
// requests, for example if a slow replica makes another one do the same work. The requests that the
// programs need occur every time.
const attempts = 5

// TestRequestsDoNotGrow counts the requests while nodes are deleted and recreated.
func TestRequestsDoNotGrow(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		out := &strings.Builder{}
		excess := []string{"never counted"}
		for attempt := 0; attempt < attempts && len(excess) > 0; attempt++ {
			excess = countRequests(t, out, replicas)
		}
		assert.Empty(t, excess, "with %d of each program:\n%s", replicas, out)
	}
}

// TestRequestsDoNotGrowWhenWatchesAreCut counts the same requests while all watches are repeatedly
// interrupted. The number of interruptions must not matter.
func TestRequestsDoNotGrowWhenWatchesAreCut(t *testing.T) {
	const replicas, maxWrites, maxReads = 2, 10.5, 2.0
	out := &strings.Builder{}
	excess := []string{"never counted"}
	for attempt := 0; attempt < attempts && len(excess) > 0; attempt++ {
		r := &report{out: out}
		require.NoError(t, cut(t.Context(), r, cutNodes, replicas, 200*time.Millisecond))
		cuts := r.value("watches cut")
		require.Greater(t, cuts, 10.0, "the watches of all programs were cut more than once")
		excess = excessOf(r.perNode(), maxWrites, maxReads)
	}
	assert.Empty(t, excess, "%s", out)
}

// The first version of each returned Node that a watcher sees has its labels, and the only patch of
// it gives them back to their field managers. The API server waits one second for an answer. If a
// busy machine takes longer, the processors restore the labels, and the attempt does not count.
func TestWebhookSavesTheWriteOfARestore(t *testing.T) {
	const replicas, maxWrites = 2, 5.5 // five writes of transactions and records are the minimum, three less than without a webhook
	out := &strings.Builder{}
	excess := []string{"never counted"}
	for attempt := 0; attempt < attempts && len(excess) > 0; attempt++ {
		r := &report{out: out}
		o := &options{nodes: 5 * webhookRate, replicas: []int{replicas}, churn: 3 * time.Second, churnRate: webhookRate, setup: setup{webhooks: 2}}
		require.NoError(t, measure(t.Context(), r, o, replicas))
		// Earlier figures depend on the records of the bare client.
		r.figures = slices.DeleteFunc(r.figures, func(f figure) bool { return f.name != "churn" })
		require.NotEmpty(t, r.figures)
		perNode := r.perNode()
		require.GreaterOrEqual(t, perNode[call{"configmaps", "POST"}], 1.9, "not all were counted")
		patches := perNode[call{"nodes", "PATCH"}]
		maps.DeleteFunc(perNode, func(one call, _ float64) bool { return one.resource != "configmaps" })
		excess = excessOf(perNode, maxWrites, 2)
		if slowest := r.value("created to restored, p100"); slowest > 0 {
			excess = append(excess, fmt.Sprintf("%.0f ms until the labels were there", slowest))
		}
		if patches > 1 {
			excess = append(excess, fmt.Sprintf("%.2f patches of Nodes", patches))
		}
		t.Log(excess)
		if slowest := r.value("request that creates a node, p99"); slowest >= 1000 {
			t.Logf("not counted: a node was created in %.0f ms", slowest)
			excess = nil
		}
	}
	assert.Empty(t, excess, "%s", out)
}

// webhookRate is the number of nodes per second that are deleted and recreated.
const webhookRate = 10

// excessOf returns the requests that exceed their bounds, without requests whose number depends on
// time.
func excessOf(perNode calls, maxWrites, maxReads float64) (excess []string) {
	delete(perNode, call{"leases", "PUT"})
	delete(perNode, call{"leases", "LIST"})
	delete(perNode, call{"events", "POST"})
	if writes := perNode.writes(); writes > maxWrites {
		excess = append(excess, fmt.Sprintf("%.2f writes", writes))
	}
	if reads := perNode.reads(); reads > maxReads {
		excess = append(excess, fmt.Sprintf("%.2f reads", reads))
	}
	return excess
}

// starvedTest is far longer than nodes wait for replicas that live for two seconds, on any machine
// that passes the other tests. It is shorter than they would wait if every new process waited for
// the others again.
const starvedTest = 2 * time.Minute

func TestReplacedReplicasStarveNoNode(t *testing.T) {
	for name, replace := range map[string]func(context.Context, *report, int) error{
		"one after the other": replaceSteadily,
		"all at once":         replaceAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			out := &strings.Builder{}
			ctx, cancel := context.WithTimeout(t.Context(), starvedTest)
			defer cancel()
			require.NoError(t, replace(ctx, &report{out: out}, 60), "%s", out)
			t.Log(out)
		})
	}
}

// countedNodes is small enough that even a busy machine restores all nodes within three seconds
// after their return. Then other replicas than their owners would start to work on them, and their
// requests would count, too.
const countedNodes = 30

// cutNodes is small enough for the same reason, and large enough for some interruptions of all
// watches.
const cutNodes = 30

// countRequests measures once and returns the requests that exceed their bounds.
func countRequests(t *testing.T, out io.Writer, replicas int) (excess []string) {
	t.Helper()
	r := &report{out: out}
	require.NoError(t, measure(t.Context(), r, &options{nodes: countedNodes, replicas: []int{replicas}}, replicas))
	for _, b := range bounds {
		sum := 0.0
		for _, one := range b.kinds {
			count := r.value(one.resource + " " + one.verb + " per node") // zero if it is missing
			sum += count
		}
		t.Logf("%d of each program: %.2f for %s", replicas, sum, b.what)
		assert.GreaterOrEqual(t, sum, b.least, "not all were counted")
		if sum > b.limit {
			excess = append(excess, fmt.Sprintf("%.2f for %s", sum, b.what))
		}
	}
	return excess
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
