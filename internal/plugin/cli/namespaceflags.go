package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The flags of kubectl that do not apply to nodes.
const (
	namespaceFlag     = "namespace"
	allNamespacesFlag = "all-namespaces"
)

// addNamespaceFlags adds flags that kubectl users type out of habit, so that an error can suggest the
// right ones.
func addNamespaceFlags(flags *pflag.FlagSet) {
	flags.StringP(namespaceFlag, "n", "", "")
	flags.BoolP(allNamespacesFlag, "A", false, "")
	for _, name := range []string{namespaceFlag, allNamespacesFlag} {
		flags.Lookup(name).Hidden = true
	}
}

// refuseNamespace returns an error if such a flag is set.
func refuseNamespace(cmd *cobra.Command) error {
	for _, name := range []string{namespaceFlag, allNamespacesFlag} {
		global := cmd.Root().PersistentFlags().Lookup(name)
		if flag := cmd.Flags().Lookup(name); flag == global && flag.Changed {
			return fmt.Errorf("nodes are in no namespace, so --%s means nothing here: if records and transactions are not where they are by default, give --metadata-namespace and --transaction-namespace", name)
		}
	}
	return nil
}
