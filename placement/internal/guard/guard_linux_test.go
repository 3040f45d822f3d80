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
	"golang.org/x/sys/unix"

	"nodekeeper.dev/placement/agent"
	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/internal/boottime"
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
	g.Extend(boottime.Now() + time.Hour)
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
	g.Extend(boottime.Now() + time.Hour)
	_, ended := work(t.Context(), g, agent.Replica{})
	require.ErrorContains(t, await(t, ended), "no such file")
}

// TestNothingOutlivesTheLease: the agent does not report a renewal in time. The program and what it
// has started ignore SIGTERM.
func TestNothingOutlivesTheLease(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	g := started(t, time.Second, "up", `trap "" TERM; sleep 1000 & echo $! > `+file+`; echo up; while :; do sleep 1000; done`)
	ready, ended := work(t.Context(), g, agent.Replica{})
	await(t, ready)
	g.Extend(boottime.Now())
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

// deaf starts a process that ignores SIGTERM, writes its process id into a file, and is up.
const deaf = `trap "" TERM; sleep 1000 & echo $! > "%s"; echo up; while :; do sleep 1000; done`

// TestKilledGuardLeavesNothing: the kernel kills the program, and the agent what that has started.
func TestKilledGuardLeavesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	g := started(t, time.Hour, "up", fmt.Sprintf(deaf, file))
	ready, _ := work(t.Context(), g, agent.Replica{})
	await(t, ready)
	require.NoError(t, g.process.Kill())
	await(t, g.Done())
	gone(t, file)
}

// TestStoppedGuardIsKilled: a signal has stopped the guard when the programs must end.
func TestStoppedGuardIsKilled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	g := started(t, time.Millisecond, "up", fmt.Sprintf(deaf, file))
	ready, _ := work(t.Context(), g, agent.Replica{})
	await(t, ready)
	require.NoError(t, g.process.Signal(syscall.SIGSTOP))
	g.Extend(boottime.Now())
	await(t, g.Done())
	gone(t, file)
}

// TestRestOfAGroupHasTime: the program ends, and what it has started needs time to end in order.
func TestRestOfAGroupHasTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := started(t, time.Hour, "", `cd `+dir+`; (trap "sleep 0.1; touch tidy; exit" TERM; touch up; while :; do sleep 0.01; done) & while ! [ -e up ]; do sleep 0.01; done; exit 3`)
	_, ended := work(t.Context(), g, agent.Replica{})
	require.ErrorContains(t, await(t, ended), "exit status 3")
	assert.FileExists(t, filepath.Join(dir, "tidy"))
}

// TestHungStartStopsNothing: the file system with the program hangs, here because of a lease on the
// file, which the kernel breaks after 45 seconds. Meanwhile, programs must end.
func TestHungStartStopsNothing(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	sleep, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "sleep")
	require.NoError(t, os.WriteFile(path, sleep, 0o700))
	g, err := Start(Config{Executable: self, Pod: t.Name() + strconv.Itoa(os.Getpid()), StopTime: time.Second, Program: []string{path, "1000"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		g.Close()
		await(t, g.Done())
	})
	g.Extend(boottime.Now() + time.Hour)
	ready, ended := work(t.Context(), g, agent.Replica{})
	await(t, ready)

	hung := path + "-2"
	require.NoError(t, os.WriteFile(hung, sleep, 0o700))
	file, err := os.Open(hung)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases on files: %v", err)
	}
	require.NoError(t, os.Rename(hung, path))
	_, hungEnded := work(t.Context(), g, agent.Replica{Index: 1})
	require.Eventually(t, func() bool { return isHung(t, file) }, patience, time.Millisecond)
	g.Extend(boottime.Now())
	require.EqualError(t, await(t, ended), "signal: terminated")
	assert.True(t, isHung(t, file), "nothing has waited for it")
	require.Contains(t, await(t, hungEnded).Error(), "signal: ")
}

// isHung reports whether another process waits for the lease on a file.
func isHung(t *testing.T, file *os.File) bool {
	t.Helper()
	info, err := file.Stat()
	require.NoError(t, err)
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	locks, err := os.ReadFile("/proc/locks")
	require.NoError(t, err)
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "LEASE") && strings.Contains(line, "BREAKING") && strings.Contains(line, inode) {
			return true
		}
	}
	return false
}
