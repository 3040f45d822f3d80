package programs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clockTick is the unit of the CPU times in /proc. The kernel exports 100 ticks a second on every architecture.
const clockTick = time.Second / 100

// Usage is the resource usage of a process since it started.
type Usage struct {
	// CPU is the time of all threads in user and kernel mode.
	CPU time.Duration
	// PeakMemory is the peak of the resident memory in bytes, including the program text.
	PeakMemory int64
}

// PeakMiB returns PeakMemory in MiB.
func (u Usage) PeakMiB() float64 { return float64(u.PeakMemory) / (1 << 20) }

// UsageOf returns the usage of the process with this id. It reads /proc, which exists only on
// Linux.
func UsageOf(pid int) (Usage, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return Usage{}, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return Usage{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	cpu, cpuErr := cpuTime(stat)
	peak, peakErr := peakMemory(status)
	if err := errors.Join(cpuErr, peakErr); err != nil {
		return Usage{}, fmt.Errorf("reading the usage of process %d: %w", pid, err)
	}
	return Usage{CPU: cpu, PeakMemory: peak}, nil
}

// cpuTime parses /proc/PID/stat: "PID (NAME) STATE ...", where NAME may contain spaces and
// parentheses. utime and stime are the fields 14 and 15 in proc_pid_stat(5), which counts from one.
func cpuTime(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const utime, stime = 14 - 3, 15 - 3 // the first field of fields is the third field of the file
	if len(fields) <= stime {
		return 0, fmt.Errorf("stat has %d fields after the name", len(fields))
	}
	user, userErr := strconv.ParseInt(string(fields[utime]), 10, 64)
	system, systemErr := strconv.ParseInt(string(fields[stime]), 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(userErr, systemErr)
}

// peakMemory parses /proc/PID/status, which has a line like "VmHWM:     1234 kB".
func peakMemory(status []byte) (int64, error) {
	for line := range bytes.Lines(status) {
		value, ok := bytes.CutPrefix(line, []byte("VmHWM:"))
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
		return kib << 10, err
	}
	return 0, errors.New("status has no VmHWM")
}

// isFrozen reports whether all threads of a process are stopped by a signal.
func isFrozen(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, errors.Join(fmt.Errorf("process %d has no threads", pid), err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return false, err
		}
		// The state is the first field after the name, which is in parentheses and may contain any
		// characters (proc_pid_stat(5)).
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) == 0 || string(fields[0]) != "T" {
			return false, nil
		}
	}
	return true, nil
}
