package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a directory until the file is closed or the process ends.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the directory
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: another agent uses it: %w", dir, err), f.Close())
	}
	return f, nil
}
