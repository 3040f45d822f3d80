package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/plugin/byhand"
)

// dryRun is the value of --dry-run.
type dryRun struct{ byhand.DryRun }

// addDryRunFlag adds --dry-run.
func addDryRunFlag(cmd *cobra.Command, value *dryRun) {
	cmd.Flags().StringVar((*string)(&value.DryRun), "dry-run", string(byhand.DryRunNone),
		"none: do it. client: only print what would be done. server: have the API server check the writes too, and store nothing.")
	cmd.Flag("dry-run").NoOptDefVal = string(byhand.DryRunClient)
	command.CompleteFlag(cmd, "dry-run", string(byhand.DryRunNone), string(byhand.DryRunClient), string(byhand.DryRunServer))
}

func (d dryRun) validate() error {
	return oneOf("--dry-run", d.DryRun, byhand.DryRunNone, byhand.DryRunClient, byhand.DryRunServer)
}

// suffix returns the suffix of output lines in a dry run.
func (d dryRun) suffix() string {
	switch d.DryRun {
	case byhand.DryRunClient:
		return " (dry run)"
	case byhand.DryRunServer:
		return " (server dry run)"
	case byhand.DryRunNone:
	}
	return ""
}

// confirmed asks for confirmation unless yes is set, and returns an error without it.
func (p *plugin) confirmed(yes bool, question string) error {
	if yes {
		return nil
	}
	_, _ = fmt.Fprintf(p.ErrOut, "%s [y/N] ", question)
	answer, err := bufio.NewReader(p.In).ReadString('\n')
	if errors.Is(err, errInterrupted) { // the user has not finished typing
		_, _ = fmt.Fprintln(p.ErrOut)
		return fmt.Errorf("aborted: %w", err)
	}
	if err != nil && answer == "" {
		_, _ = fmt.Fprintln(p.ErrOut)
		return errors.New("aborted: answer y, or give --yes")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("aborted")
}

// addYesFlag adds --yes.
func addYesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "Do not ask.")
}

// addTimeoutFlag adds --timeout.
func addTimeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", time.Minute, "How long to wait until the processors have applied the change.")
}

// comparing gives the errors of a command that reports its result by the exit code 1 the exit code 2, like
// kubectl diff.
func comparing(err error) error {
	if err == nil || errors.Is(err, command.ErrReported) {
		return err
	}
	return command.UsageError(err)
}
