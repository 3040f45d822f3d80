package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
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

// TestQueueIsWorkedOnInOrder: agents are killed, end and freeze, and the queue is killed, while
// messages come. The workers of the frozen agent act late, and the queue refuses that. In the end,
// check finds each message done once and in order.
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

	q.freezeAgent(t, pods[2])

	require.NoError(t, serving.Kill())
	q.serve()
	q.ready()
	stop()
	out, err := q.run("check", "--wait="+patience.String())
	require.NoError(t, err, out)
	assert.Contains(t, out, "each once and in order, and no two owners took turns")
	assert.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 1+6+1, out)
	for _, line := range strings.Split(out, "\n")[1:7] {
		assert.NotEqual(t, "0", strings.Fields(line)[2], "messages are done: %s", line)
	}
	t.Log("\n" + out)
}

// freezeAgent freezes an agent and its guard, which can then not stop its workers, until its Lease
// has been taken over and the queue has refused one of them.
func (q *exampleQueue) freezeAgent(t *testing.T, p *pod) {
	t.Helper()
	group := append(children(t, p.PID()), p.PID())
	workers := q.workers(t, group)
	require.NotEmpty(t, workers)
	require.Zero(t, q.refused(t, workers))
	group = slices.DeleteFunc(group, func(pid int) bool { return slices.Contains(workers, pid) })
	require.Greater(t, len(group), 1, "the agent and the guard")
	t.Cleanup(func() { signalAll(t, group, syscall.SIGCONT) })
	signalAll(t, group, syscall.SIGSTOP)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Empty(t, q.holder(t, p)) }, patience, period, "its Lease is taken over")
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.NotZero(t, q.refused(t, workers)) }, patience, period, "its workers are refused")
	q.ready()
	signalAll(t, group, syscall.SIGCONT)
}

// workers returns those of some processes that are workers.
func (q *exampleQueue) workers(t *testing.T, pids []int) (all []int) {
	t.Helper()
	for _, pid := range pids {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		require.NoError(t, err)
		if strings.HasPrefix(string(command), q.path+"\x00work\x00") {
			all = append(all, pid)
		}
	}
	return all
}

// refused returns how many requests of some workers the queue has refused.
func (q *exampleQueue) refused(t require.TestingT, workers []int) (count int) {
	r, err := http.NewRequestWithContext(q.t.Context(), http.MethodGet, "http://"+q.address+"/log", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }() // it was read
	for log := json.NewDecoder(answer.Body); ; {
		var record struct{ Event, Worker string }
		err := log.Decode(&record)
		if errors.Is(err, io.EOF) {
			return count
		}
		require.NoError(t, err)
		_, process, _ := strings.Cut(record.Worker, "/")
		if pid, _ := strconv.Atoi(process); record.Event == "refused" && slices.Contains(workers, pid) {
			count++
		}
	}
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

// signalAll sends a signal to processes, unless they have ended.
func signalAll(t *testing.T, pids []int, s syscall.Signal) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
	}
}
