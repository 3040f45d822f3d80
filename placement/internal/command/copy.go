package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// programName is the name of the file that [Copy] writes.
const programName = "placement"

// Copy is the command copy: it copies this program into a directory as the file placement. So an
// init container can put the agent into a volume for a container with another image. It replaces
// the file in one step.
func Copy(args []string) error {
	if len(args) != 1 || args[0] == "" || args[0][0] == '-' {
		return errors.New("give one directory: see placement --help")
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the own executable: %w", err)
	}
	if err := copyProgram(executable, filepath.Join(args[0], programName)); err != nil {
		return fmt.Errorf("copying the program: %w", err)
	}
	return nil
}

// copyProgram copies a file, which every user may run then.
func copyProgram(from, to string) (err error) {
	source, err := os.Open(from) //nolint:gosec // the path of this program
	if err != nil {
		return err //nolint:wrapcheck // Copy does
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := os.CreateTemp(filepath.Dir(to), ".placement-")
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	defer func() {
		if err != nil {
			_ = os.Remove(target.Name())
		}
	}()
	_, err = io.Copy(target, source)
	if err = errors.Join(err, target.Chmod(0o755), target.Close()); err != nil {
		return err
	}
	return os.Rename(target.Name(), to) //nolint:wrapcheck // as above
}
