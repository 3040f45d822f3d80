//go:build !linux

package guard

import (
	"errors"
	"syscall"
)

var errLinux = errors.New("programs are run on Linux only")

// Main returns an error: the guard needs what only Linux has.
func Main([]string) error { return errLinux }

func guardAttributes() *syscall.SysProcAttr { return nil }

func adoptOrphans() error { return errLinux }

func killSession(int) {}
