package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/daemon/command/typo"
)

// nodePrefix precedes the names of nodes in -o name.
const nodePrefix = "node/"

// oneNode is the Args of a command that takes one node.
func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the name of one node: %s", command.Synopsis(cmd))
	}
	return nil
}

// someNodes is the Args of a command that takes one or more nodes.
func someNodes(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("give the names of nodes: %s", command.Synopsis(cmd))
	}
	return nil
}

// nodeNames returns the names of nodes in the arguments without duplicates. It accepts node/NAME, the
// output of -o name, as well as NAME.
func nodeNames(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		name := strings.TrimPrefix(arg, nodePrefix)
		if len(apivalidation.NameIsDNSSubdomain(name, false)) > 0 {
			return nil, command.UsageError(fmt.Errorf("%q is not the name of a node", arg))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// oneOf returns an error unless value is allowed.
func oneOf[T ~string](flag string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	texts := make([]string, len(allowed))
	for i, one := range allowed {
		texts[i] = string(one)
	}
	return command.UsageError(errors.New(flag + "=" + string(value) + " is not known: " + typo.Advice(string(value), texts, "", "use "+strings.Join(texts, ", "))))
}
