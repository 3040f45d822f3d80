package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"nodekeeper.dev/internal/plugin/cli/output"
	"nodekeeper.dev/internal/plugin/cli/typo"
)

// noArgs is for commands that take no arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}

// aCommand is for the plugin itself, which takes the name of a command.
func aCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, command := range cmd.Commands() {
		if command.IsAvailableCommand() {
			names = append(names, command.Name())
		}
	}
	return fmt.Errorf("there is no command %q: %s", args[0], typo.Advice(args[0], names, "", "see "+cmd.CommandPath()+" --help"))
}

// oneNode is for commands that are about one node.
func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the name of one node: %s", usage(cmd))
	}
	return nil
}

// someNodes is for commands that are about one node or more.
func someNodes(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("give the names of nodes: %s", usage(cmd))
	}
	return nil
}

// usage is a command with its arguments.
func usage(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.UseLine(), " [flags]")
}

// nodeNames returns the names of nodes that the arguments give, each once. NAME is as good as
// node/NAME, which -o name prints.
func nodeNames(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		name := strings.TrimPrefix(arg, output.NamePrefix)
		if len(apivalidation.NameIsDNSSubdomain(name, false)) > 0 {
			return nil, misused(fmt.Errorf("%q is not the name of a node", arg))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// oneOf returns an error unless value is among those that are allowed.
func oneOf[T ~string](flag string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	texts := make([]string, len(allowed))
	for i, one := range allowed {
		texts[i] = string(one)
	}
	return misused(errors.New(flag + "=" + string(value) + " is not known: " + typo.Advice(string(value), texts, "", "use "+strings.Join(texts, ", "))))
}
