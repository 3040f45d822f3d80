package programs_test

import (
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// TestUsageGrows lets this process use CPU time and memory.
func TestUsageGrows(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the usage of a process is read from /proc")
	}
	before, err := programs.UsageOf(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, before.PeakMemory, int64(1<<20))
	assert.Less(t, before.PeakMemory, int64(1<<30))

	const taken = 64 << 20
	memory := make([]byte, taken)
	x := 0.0
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
		for i := 0; i < len(memory); i += 512 {
			memory[i]++
			x += math.Sqrt(float64(memory[i]))
		}
	}
	runtime.KeepAlive(x)
	after, err := programs.UsageOf(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, after.CPU, before.CPU)
	assert.Less(t, after.CPU-before.CPU, time.Minute)
	assert.GreaterOrEqual(t, after.PeakMemory-before.PeakMemory, int64(taken/2))
}

func TestUsageOfNoProcessIsAnError(t *testing.T) {
	_, err := programs.UsageOf(math.MaxInt32)
	require.ErrorIs(t, err, os.ErrNotExist)
}
