package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/daemon/command/typo"
)

// NoArgs is the Args of a command that takes no arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: %s", args[0], seeHelp(cmd))
	}
	return nil
}

// Synopsis returns a command with its arguments, for an error about them.
func Synopsis(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.UseLine(), " [flags]")
}

// subcommand is the Args of a command that only has subcommands: an argument is an unknown
// subcommand.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, command := range cmd.Commands() {
		if command.IsAvailableCommand() {
			names = append(names, command.Name())
		}
	}
	return fmt.Errorf("there is no command %q: %s", args[0], typo.Advice(args[0], names, "", seeHelp(cmd)))
}
