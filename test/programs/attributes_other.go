//go:build !linux

package programs

import "syscall"

// processAttributes keeps Ctrl-C away from a program. On this system it cannot end together with
// the process that started it.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
