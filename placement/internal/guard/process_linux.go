package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// guardAttributes keeps signals to the process group or the terminal of the agent away from the
// guard.
func guardAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// programAttributes gives a program a process group, and lets the kernel kill it if the thread that
// starts it ends.
func programAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of processes whose parents end, so that it can wait
// for all processes of a group.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopting orphans: %w", err)
	}
	return nil
}

// endWith lets the kernel kill this process if its parent, which must be that process, ends. It must
// be called by a thread that is locked.
func endWith(parent string) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	if strconv.Itoa(os.Getppid()) != parent {
		return errors.New("the guard has ended")
	}
	return nil
}

// awaitExit waits until a child has ended, and leaves it to be waited for: its process id, and so
// that of its group, is not used again before.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// reap waits for the ended children of a process group.
func reap(group int) {
	for {
		pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}

// exists reports whether a process group has a process.
func exists(group int) bool { return syscall.Kill(-group, 0) != syscall.ESRCH }
