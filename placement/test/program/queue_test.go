package program

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/uuid"

	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
)

// exampleQueue is the queue of the example, with workers that agents run.
type exampleQueue struct {
	*cluster

	path, address, dir string
}

// serve starts the queue, again if it has run before. It keeps its log.
func (q *exampleQueue) serve() *programs.Program {
	q.t.Helper()
	p, err := programs.Launch(nil, "queue", "queue", "serve", "--listen="+q.address, "--dir="+q.dir)
	require.NoError(q.t, err)
	q.t.Cleanup(func() { assert.NoError(q.t, p.Stop(stopTimeout)) })
	require.Eventually(q.t, func() bool {
		connection, err := (&net.Dialer{}).DialContext(q.t.Context(), "tcp", q.address)
		return err == nil && connection.Close() == nil
	}, patience, period)
	return p
}

// agent starts an agent with the worker of the example in a pod.
func (q *exampleQueue) agent(p *pod) *pod {
	q.t.Helper()
	return q.agentWith(p, "--exec", "--ready-line=ready", "--", q.path, "work", "--url=http://"+q.address, "--work=20ms")
}

// run runs a command of the example.
func (q *exampleQueue) run(args ...string) (string, error) {
	out, err := exec.CommandContext(q.t.Context(), q.path, append([]string{args[0], "--url=http://" + q.address}, args[1:]...)...).CombinedOutput()
	return string(out), err
}

// ready waits until the Queue is Ready.
func (q *exampleQueue) ready() {
	q.t.Helper()
	require.EventuallyWithT(q.t, func(t *assert.CollectT) {
		for _, kind := range []string{"Acknowledged", "Ready"} {
			status, reason := q.condition(t, kind)
			assert.Equal(t, "True", status, reason)
		}
	}, patience, period)
}

// newExampleQueue starts the queue, a controller, and three agents, which share six partitions.
func newExampleQueue(t *testing.T) (q *exampleQueue, queue *programs.Program, pods []*pod) {
	t.Helper()
	path, err := programs.Path("queue")
	require.NoError(t, err)
	port, err := ports.Free()
	require.NoError(t, err)
	q = &exampleQueue{cluster: newCluster(t, short), path: path, address: fmt.Sprintf("127.0.0.1:%d", port), dir: t.TempDir()}
	queue = q.serve()
	for i := range 3 {
		pods = append(pods, q.agent(&pod{name: fmt.Sprintf("w-%d", i), uid: uuid.NewUUID()}))
	}
	q.awaitJoined(pods...)
	q.create(6)
	q.ready()
	return q, queue, pods
}

// produce adds messages to the six partitions until it is stopped.
func (q *exampleQueue) produce() (stop func()) {
	ctx, cancel := context.WithCancel(q.t.Context())
	var producer sync.WaitGroup
	producer.Go(func() {
		for ctx.Err() == nil {
			// The queue may be down. A message whose answer was lost is there twice, which is no fault.
			_, _ = q.run("add", "--partitions=6", "--count=30", queue)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); producer.Wait() }
}

// TestQueueIsWorkedOnInOrder: agents are killed, end and freeze with all their processes, and the
// queue is killed, while messages come. In the end, check finds each message done once and in order.
func TestQueueIsWorkedOnInOrder(t *testing.T) {
	t.Parallel()
	q, serving, pods := newExampleQueue(t)
	stop := q.produce()
	defer stop()

	require.NoError(t, pods[0].Kill())
	pods[0] = q.agent(&pod{name: "w-3", uid: uuid.NewUUID()})
	q.ready()
	require.NoError(t, pods[1].Stop(stopTimeout))
	q.ready()

	group := append(children(t, pods[2].PID()), pods[2].PID())
	require.Greater(t, len(group), 2, "the guard and its programs")
	signalAll(t, group, syscall.SIGSTOP)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, q.holder(t, pods[2])) }, patience, period, "its Lease is taken over")
	q.ready()
	signalAll(t, group, syscall.SIGCONT) // its workers may act late, and the queue refuses that

	require.NoError(t, serving.Kill())
	q.serve()
	q.ready()
	stop()
	out, err := q.run("check", "--wait="+patience.String())
	require.NoError(t, err, out)
	assert.Contains(t, out, "each once and in order, and no two owners took turns")
	assert.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 1+6+1, out)
	for line := range strings.SplitSeq(out, "\n") {
		assert.NotContains(t, line, " 0      0 ", "each partition has messages")
	}
	t.Log("\n" + out)
}

// children returns the processes that a process has started, and those that they have started.
func children(t *testing.T, parent int) (all []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", parent))
	require.NoError(t, err)
	for _, task := range tasks {
		// Each thread has a list of the processes that it has started.
		file, err := os.Open(fmt.Sprintf("/proc/%d/task/%s/children", parent, task.Name()))
		if err != nil {
			continue // the thread has ended
		}
		words := bufio.NewScanner(file)
		words.Split(bufio.ScanWords)
		for words.Scan() {
			var child int
			_, err := fmt.Sscan(words.Text(), &child)
			require.NoError(t, err)
			all = append(append(all, child), children(t, child)...)
		}
		require.NoError(t, file.Close())
	}
	return all
}

// signalAll sends a signal to processes that are children of an agent.
func signalAll(t *testing.T, pids []int, s syscall.Signal) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
	}
}
