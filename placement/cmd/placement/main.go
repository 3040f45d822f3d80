// Command placement distributes numbered work over pods: placement controller decides which pod
// works on what, and placement agent runs it in each pod. See placement/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"nodekeeper.dev/internal/daemon/memory"
	"nodekeeper.dev/internal/daemon/version"
	"nodekeeper.dev/placement/internal/command"
	"nodekeeper.dev/placement/internal/guard"
)

const usage = `Usage:
  placement controller --pool-config FILE [flags]
  placement agent --namespace NS --pool POOL --pod NAME --pod-uid UID [flags] --exec -- PROGRAM ARGS...
  placement agent --namespace NS --pool POOL --pod NAME --pod-uid UID [flags] --file DIRECTORY
  placement copy DIRECTORY

placement copy copies the program into a directory, so that an init container can add the agent to a container with another image.
placement controller --help and placement agent --help list the flags.
`

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == guard.Command {
		exit(guard.Main(args[1:]))
	}
	memory.Save()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, args, os.Stderr)
	stop()
	exit(err)
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("give a command, controller, agent or copy: see placement --help")
	}
	switch args[0] {
	case "controller":
		return command.Controller(ctx, args[1:], stderr)
	case "agent":
		return command.Agent(ctx, args[1:], stderr)
	case "copy":
		return command.Copy(args[1:], stderr)
	case "-h", "-help", "--help", "help":
		_, _ = io.WriteString(stderr, usage)
		return nil
	case "-version", "--version":
		return command.ErrVersion
	}
	return fmt.Errorf("unknown command %q: see placement --help", args[0])
}

// exit ends the process: with 0 if there is no error, or else with 1 and the error in one line.
func exit(err error) {
	switch {
	case errors.Is(err, command.ErrVersion):
		_, _ = fmt.Fprintln(os.Stdout, version.Line("placement"))
	case err != nil && !errors.Is(err, command.ErrHelp):
		_, _ = fmt.Fprintln(os.Stderr, "placement:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
