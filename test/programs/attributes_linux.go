package programs

import "syscall"

// processAttributes keeps Ctrl-C away from a program, and ends it when the process that started it is killed.
func processAttributes() *syscall.SysProcAttr {
	// Pdeathsig counts on the thread that starts it; the runtime keeps the main threads alive.
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
