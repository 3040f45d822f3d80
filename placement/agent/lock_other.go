//go:build !linux

package agent

import "os"

// lock opens a directory. It does not lock it on this platform.
func lock(dir string) (*os.File, error) { return os.Open(dir) }
