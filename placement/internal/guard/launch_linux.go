package guard

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// launch makes this process the program. It returns only if that fails.
func launch(guard string, command []string) error {
	runtime.LockOSThread() // the thread that becomes the program must end with the guard
	const startedFD = 3    // the first of cmd.ExtraFiles
	started := os.NewFile(startedFD, "started")
	syscall.CloseOnExec(startedFD)
	err := endWith(guard)
	if err == nil {
		err = replace(command)
	}
	_, _ = started.WriteString(err.Error()) // the guard has ended otherwise
	return err
}

// replace replaces this process.
func replace(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err //nolint:wrapcheck // it names the program
	}
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, command, os.Environ())} //nolint:gosec // the program that people gave
}
