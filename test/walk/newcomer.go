package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// endTimeout is how long a command has to end after the walk was interrupted.
const endTimeout = time.Minute

// tools are what the page expects on the machine besides Go: make and git, the shell that the
// Makefile uses, and the tools of POSIX and of util-linux and procps, which pages have people type.
// There is neither kubectl nor a C compiler.
var tools = strings.Fields(`make git bash sh
	awk basename cat chmod cmp cp cut date diff dirname env expr find grep head id ln ls mkdir mkfifo mktemp mv od
	pkill printf ps pwd rm rmdir script sed seq sleep sort tail tee test touch tr true uname uniq wc xargs`)

// kept are the settings of the user that a newcomer has, too: home, language, those of Go and of the
// network, the control plane, and whether make race runs its tests elsewhere. Others could stand in
// for a program that is not in $PATH.
var kept = regexp.MustCompile(`^(HOME|TMPDIR|LANG|LC_ALL|XDG_\w+|GO[A-Z]+|SSL_CERT_\w+|\w+_(proxy|PROXY)|KUBEBUILDER_ASSETS|RACED)$`)

// newcomer is a user who has this repository, on a machine whose Go caches keep what was downloaded
// and built before.
type newcomer struct {
	root string
	env  []string
	out  io.Writer
}

// printLine writes a line of the walk's own.
func printLine(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "--- "+format+"\n", args...)
}

// arrive links the tools into a directory in dir.
func arrive(ctx context.Context, root, dir string) (*newcomer, error) {
	bin := filepath.Join(dir, "bin")
	if err := linkTools(ctx, bin); err != nil {
		return nil, err
	}
	n := &newcomer{root: root, env: environment(os.Environ(), root, bin), out: os.Stdout}
	fresh, err := isFresh(ctx, root)
	if err != nil {
		return nil, err
	}
	if !fresh {
		printLine(n.out, "this is no fresh clone: what was changed or built here before may hide that something is missing")
	}
	return n, nil
}

// isFresh reports whether a checkout has nothing that its commit does not have.
func isFresh(ctx context.Context, root string) (bool, error) {
	changes, err := exec.CommandContext(ctx, "git", "-C", root, "status", "--porcelain").Output()
	if err != nil {
		return false, fmt.Errorf("looking for changes: %w", err)
	}
	built, err := os.ReadDir(filepath.Join(root, "bin"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return len(changes) == 0 && len(built) == 0, nil
}

// linkTools makes a directory that has Go and the tools, and nothing else.
func linkTools(ctx context.Context, bin string) error {
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	// What is called go in $PATH may need other programs to find the toolchain.
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("looking for Go: %w", err)
	}
	for _, name := range []string{"go", "gofmt"} {
		if err := os.Symlink(filepath.Join(strings.TrimSpace(string(root)), "bin", name), filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("looking for the basic tools: %w", err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}

// environment returns the settings that a newcomer keeps, with this directory as $PATH.
func environment(settings []string, root, path string) []string {
	// The Makefile that runs the walk sets these two.
	set := []string{"GOWORK=off", "KUBEBUILDER_ASSETS=" + filepath.Join(root, "bin", "controlplane")}
	env := []string{"PATH=" + path}
	for _, setting := range settings {
		if name, _, _ := strings.Cut(setting, "="); kept.MatchString(name) && !slices.Contains(set, setting) {
			env = append(env, setting)
		}
	}
	return env
}

// effort is what a command took.
type effort struct {
	elapsed time.Duration
	// busy is the processor time. It hardly depends on what else the machine does.
	busy time.Duration
}

// run types a script. It shows what the script prints, and returns what of that goes
// to the standard output.
func (n *newcomer) run(ctx context.Context, script string) (printed string, took effort, err error) {
	printLine(n.out, "%s", script)
	var output bytes.Buffer
	bash := filepath.Join(strings.TrimPrefix(n.env[0], "PATH="), "bash")
	cmd := exec.CommandContext(ctx, bash, "-c", script)
	cmd.Dir, cmd.Env = n.root, n.env
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&output, n.out), os.Stderr
	// In a group of its own, so that all of it ends when the walk is interrupted.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = endTimeout
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return "", effort{}, fmt.Errorf("typing %q: %w", script, err)
	}
	took = effort{elapsed: time.Since(begin), busy: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	printLine(n.out, "%s: %s, of processors %s", script, took.elapsed.Round(time.Second), took.busy.Round(time.Second))
	return output.String(), took, nil
}
