package programs

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFrozenProcessStandsStill(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the state of a process is read from /proc")
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // its context has ended
	frozen, err := isFrozen(cmd.Process.Pid)
	require.NoError(t, err)
	assert.False(t, frozen)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		frozen, err := isFrozen(cmd.Process.Pid)
		require.NoError(c, err)
		assert.True(c, frozen)
	}, 3*time.Minute, time.Millisecond)
}
