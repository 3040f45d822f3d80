package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// launcher is what envtest starts in place of a server, so that the server's process id is known: exec keeps it.
const launcher = `#!/bin/sh
echo $$ >%s
exec %s "$@"
`

// lastWill waits for the end of its standard input, that is of its owner, and then ends the servers whose process
// ids stand in directory $1. They have nothing to save: SIGKILL. Directory $2, if any, is removed after they are gone.
const lastWill = `
read -r _
for pid in "$1"/*.pid; do kill -9 "$(cat "$pid")"; done
sleep 1
[ -z "$2" ] || rm -rf "$2"
`

// guard is a process that ends the servers if this process dies before it could.
type guard struct {
	cmd *exec.Cmd
	// lifeline is never written to. The kernel closes it when this process ends, however it ends.
	lifeline io.Closer
}

// startGuard starts the guard of the servers in dir; with removeDir it also removes dir in the end.
func startGuard(dir string, removeDir bool) (*guard, error) {
	remove := ""
	if removeDir {
		remove = dir
	}
	//nolint:noctx // It is to outlive whatever its owner's contexts do.
	cmd := exec.Command("/bin/sh", "-c", lastWill, "guard", dir, remove)
	// Ctrl-C in a terminal goes to a whole process group, and is not meant for the guard.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &guard{cmd: cmd, lifeline: lifeline}, nil
}

// dismiss ends the guard without its last will.
func (g *guard) dismiss() error {
	err := g.cmd.Process.Kill()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending the guard: %w", err)
	}
	_ = g.cmd.Wait() // The error reports that it was killed. Wait also closes the lifeline.
	return nil
}

// writeLauncher makes the launcher of a server in dir and returns its path.
func writeLauncher(dir, assets string, s Server) (string, error) {
	path := filepath.Join(dir, string(s))
	script := fmt.Sprintf(launcher, shellQuote(path+".pid"), shellQuote(filepath.Join(assets, string(s))))
	// A process that is forked while the file is open holds it open until it runs its own program. To
	// run the launcher would fail with ETXTBSY until then.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", fmt.Errorf("writing the launcher of %s: %w", s, err)
	}
	return path, nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
