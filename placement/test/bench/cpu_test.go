package bench

import (
	"syscall"
	"testing"
	"time"
)

// cpu measures the CPU time of a benchmark. Unlike wall-clock time, it does not depend on the load
// of the machine.
type cpu struct {
	b     *testing.B
	start time.Duration
}

func startCPU(b *testing.B) cpu {
	b.Helper()
	return cpu{b, used()}
}

func (c cpu) report() {
	c.b.Helper()
	c.b.ReportMetric(float64((used()-c.start).Microseconds())/float64(c.b.N)/1000, "cpu-ms/op")
}

func used() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
