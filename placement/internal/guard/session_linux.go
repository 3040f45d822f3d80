package guard

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// killSession kills all processes of a session, and returns when none is left.
func killSession(session int) {
	for pause := minSweepPeriod; ; pause = min(2*pause, maxSweepPeriod) {
		pids := sessionOf(session)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended, which is as good
		}
		<-time.After(pause)
	}
}

// sessionOf returns the processes of a session, and waits for those that have ended if this process
// is their parent.
func sessionOf(session int) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // a file of the kernel
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		var state string
		var parent, group, of int
		// The name in parentheses may have any characters.
		fields := content[bytes.LastIndexByte(content, ')')+1:]
		switch _, err := fmt.Sscan(string(fields), &state, &parent, &group, &of); {
		case err != nil || of != session:
		case state != "Z":
			pids = append(pids, pid)
		case parent == os.Getpid():
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // a zombie does no work
		}
	}
	return pids
}
