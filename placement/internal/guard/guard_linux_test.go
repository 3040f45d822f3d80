package guard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/contract"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Main(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is for what must happen, on a machine that is busy.
const patience = 3 * time.Minute

// started returns a guard that runs a shell script. Programs may run for an hour.
func started(t *testing.T, stopTime time.Duration, readyLine, script string) *Guard {
	t.Helper()
	g := startOnly(t, t.Name(), stopTime, readyLine, script)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, g.WaitUp(ctx))
	g.Extend(time.Now().Add(time.Hour))
	return g
}

func startOnly(t *testing.T, pod string, stopTime time.Duration, readyLine, script string) *Guard {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	g, err := Start(Config{Executable: self, Pod: pod + strconv.Itoa(os.Getpid()), StopTime: stopTime, ReadyLine: readyLine, Program: []string{"sh", "-c", script}})
	require.NoError(t, err)
	t.Cleanup(func() {
		g.Close()
		await(t, g.Done())
	})
	return g
}

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.Fail(t, "it does not come")
	}
	return v
}

// work runs the program for a virtual replica.
func work(ctx context.Context, g *Guard, r agent.Replica) (ready chan bool, ended chan error) {
	ready, ended = make(chan bool, 2), make(chan error, 1)
	go func() { ended <- g.Work(ctx, r, func() { ready <- true }) }()
	return ready, ended
}

// gone waits until a process whose id is in a file has ended.
func gone(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH) }, patience, time.Millisecond)
}

func TestProgramKnowsItsReplica(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	g := started(t, time.Second, "", `env | grep ^PLACEMENT_ | sort > `+file+`; echo the last line; exit 3`)
	_, ended := work(t.Context(), g, agent.Replica{
		Resource: contract.Reference{UID: "0b8a", APIVersion: "example.com/v1", Kind: "Queue", Namespace: "shop", Name: "orders"},
		Index:    3, Of: 12, Epoch: 17, Payload: []byte(`{"a":1}`),
	})
	require.EqualError(t, await(t, ended), "the last line (exit status 3)")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, `PLACEMENT_API_VERSION=example.com/v1
PLACEMENT_EPOCH=17
PLACEMENT_INDEX=3
PLACEMENT_KIND=Queue
PLACEMENT_NAME=orders
PLACEMENT_NAMESPACE=shop
PLACEMENT_OF=12
PLACEMENT_PAYLOAD={"a":1}
PLACEMENT_UID=0b8a
`, string(content))
}

func TestProgramIsReadyAtItsLine(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "go")
	g := started(t, time.Second, "up", `echo up and down; while ! [ -e `+file+` ]; do sleep 0.01; done; echo up; exec sleep 1000`)
	ready, ended := work(ctx, g, agent.Replica{})
	assert.Empty(t, ready)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	await(t, ready)
	cancel()
	require.EqualError(t, await(t, ended), "up (signal: terminated)")
}

func TestProgramThatDoesNotStart(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	g, err := Start(Config{Executable: self, Pod: t.Name() + strconv.Itoa(os.Getpid()), StopTime: time.Second, Program: []string{"/no/such/program"}})
	require.NoError(t, err)
	t.Cleanup(g.Close)
	g.Extend(time.Now().Add(time.Hour))
	_, ended := work(t.Context(), g, agent.Replica{})
	require.ErrorContains(t, await(t, ended), "no such file")
}

// TestNothingOutlivesTheLease: the agent does not report a renewal in time. The program and what it
// has started ignore SIGTERM.
func TestNothingOutlivesTheLease(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	g := started(t, 10*time.Millisecond, "up", `trap "" TERM; sleep 1000 & echo $! > `+file+`; echo up; while :; do sleep 1000; done`)
	ready, ended := work(t.Context(), g, agent.Replica{})
	await(t, ready)
	g.Extend(time.Now())
	require.EqualError(t, await(t, ended), "up (signal: killed)")
	gone(t, file)
	_, ended = work(t.Context(), g, agent.Replica{})
	require.ErrorContains(t, await(t, ended), "not renewed in time")
}

// TestNothingOutlivesTheAgent: the next guard of the pod waits until all has ended.
func TestNothingOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	const script = `trap "" TERM; sleep 1000 & echo $! > "%[1]s"; echo up; while :; do sleep 1000; done`
	g := started(t, time.Hour, "up", fmt.Sprintf(script, file))
	ready, _ := work(t.Context(), g, agent.Replica{})
	await(t, ready)
	next := startOnly(t, t.Name(), time.Second, "", "exit")
	assert.Empty(t, next.up)
	g.Close()
	await(t, next.up)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	await(t, g.Done())
}
