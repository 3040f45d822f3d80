package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// programName is the name of the file that [Copy] writes.
const programName = "placement"

// copyUsage is the help of the command copy, which has no flags.
const copyUsage = `Usage of placement copy:
  placement copy DIRECTORY
    	copy this program into the directory, as the file placement
`

// Copy is the command copy: it copies this program into a directory as the file placement. An init
// container uses it to add the agent to a container with another image. It replaces the file in one
// step. It prints help to stderr on request, and returns [ErrHelp] then.
func Copy(args []string, stderr io.Writer) error {
	fs := flag.NewFlagSet("placement copy", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the error is enough
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(stderr, copyUsage)
		return ErrHelp
	} else if err != nil {
		return fmt.Errorf("%w: see placement copy --help", err)
	}
	if fs.NArg() != 1 || fs.Arg(0) == "" {
		return errors.New("give one directory: see placement copy --help")
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this executable: %w", err)
	}
	if err := copyProgram(executable, filepath.Join(fs.Arg(0), programName)); err != nil {
		return fmt.Errorf("copying the program: %w", err)
	}
	return nil
}

// copyProgram copies a file, and makes it executable for all users.
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
