package programs

import "syscall"

// processAttributes keeps Ctrl-C away from a program, and ends it if the process that started it is
// killed.
func processAttributes() *syscall.SysProcAttr {
	// Pdeathsig depends on the thread that starts the process; the runtime keeps the main threads
	// alive.
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
