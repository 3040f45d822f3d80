package plugin_test

import (
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
)

// manyRunning is the number of nodes created in parallel.
const manyRunning = 16

var manyNodes = flag.Int("plugin.nodes", 1000, "how many nodes TestManyNodes creates")

// maxCPUTime returns the CPU time that a command may take with n nodes: elapsed time depends more
// on the load of the machine.
func maxCPUTime(n int) time.Duration {
	return 500*time.Millisecond + time.Duration(n)*300*time.Microsecond
}

// maxMemory returns the bytes of memory that a command may use with n nodes.
func maxMemory(n int) int64 { return 60<<20 + int64(n)*8<<10 }

// TestManyNodes runs commands with many nodes, with 12 labels and a record each. With -v it logs
// the best time of three, and the peak memory.
func TestManyNodes(t *testing.T) {
	e := newEnvOf(t, ownPlane(t))
	e.fill(*manyNodes)
	for _, args := range [][]string{{"list"}, {"list", "-o", "json"}, {"status"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			best := cost{time: time.Hour, cpu: time.Hour}
			for range 3 {
				one := e.measure(args...)
				best = cost{min(best.time, one.time), min(best.cpu, one.cpu), max(best.memory, one.memory)}
			}
			t.Logf("%d nodes: %s, of which %s computing; %d MiB", *manyNodes, best.time.Round(time.Millisecond), best.cpu.Round(time.Millisecond), best.memory>>20)
			assert.Less(t, best.cpu, maxCPUTime(*manyNodes))
			assert.Less(t, best.memory, maxMemory(*manyNodes))
		})
	}
}

// fill creates nodes with records, as processors would create them.
func (e *env) fill(n int) {
	e.t.Helper()
	group, ctx := errgroup.WithContext(e.t.Context())
	group.SetLimit(manyRunning)
	for i := range n {
		group.Go(func() error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i), Labels: set{}}}
			for label := range 12 {
				node.Labels[fmt.Sprintf("example.com/label-%d", label)] = fmt.Sprintf("value-%d-%d", i, label)
			}
			if err := e.client.Create(ctx, node); err != nil {
				return err
			}
			saved := record.Record{Node: node.Name, Labels: node.Labels, Revision: revision.Of(node.ResourceVersion), Source: node.UID, SavedAt: time.Now()}
			return e.client.Create(ctx, saved.ConfigMap(e.metadata))
		})
	}
	require.NoError(e.t, group.Wait())
}

// cost is the cost of a command: elapsed time, CPU time, and peak memory in bytes.
type cost struct {
	time, cpu time.Duration
	memory    int64
}

// measure runs kubectl nodekeeper and returns its cost.
func (e *env) measure(args ...string) cost {
	e.t.Helper()
	cmd := e.Command(e.t.Context(), "kubectl", append(append([]string{"nodekeeper"}, args...), e.Flags...)...)
	start := time.Now()
	out, err := cmd.Output()
	took := time.Since(start)
	if args[0] != "status" { // which reports that nothing runs here
		require.NoError(e.t, err)
	}
	require.Greater(e.t, len(out), 100)
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	require.True(e.t, ok)
	// Maxrss is in KiB on Linux. kubectl becomes the plugin, or waits for it.
	return cost{took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Maxrss << 10}
}
