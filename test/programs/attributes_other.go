//go:build !linux

package programs

import "syscall"

// processAttributes keeps Ctrl-C away from a program. There is no way here to end it with the process that started it.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
