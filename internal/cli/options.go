package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// maxTypos is how many letters may be wrong in what is taken for a typing error.
const maxTypos = 2

// newOptionsCommand returns the command that lists the flags which every command has, as kubectl
// options does.
func newOptionsCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command has",
		Long:  "List the flags that every command has. Flags of kubectl, such as --context, mean the same here.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), "These flags can be given to every command:\n\n"+root.PersistentFlags().FlagUsages())
			return err
		},
	}
}

// hideGlobalFlags has help leave out the flags that the command options lists.
func hideGlobalFlags(root *cobra.Command) {
	usage := root.UsageTemplate()
	for was, is := range map[string]string{
		"{{if .HasAvailableLocalFlags}}":                                          "{{if and .HasParent .HasAvailableLocalFlags}}",
		"{{if .HasAvailableInheritedFlags}}":                                      "{{if true}}",
		"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}": `Use "` + commandPath(root) + ` options" for the flags that every command has.`,
	} {
		usage = strings.ReplaceAll(usage, was, is)
	}
	root.SetUsageTemplate(usage)
}

// commandPath returns how people call the plugin.
func commandPath(root *cobra.Command) string {
	return root.Annotations[cobra.CommandDisplayNameAnnotation]
}

// The flags of kubectl that mean nothing here.
const (
	namespaceFlag     = "namespace"
	allNamespacesFlag = "all-namespaces"
)

// addNamespaceFlags adds flags that people of kubectl give by habit, so that an error can say what
// to do instead.
func addNamespaceFlags(flags *pflag.FlagSet) {
	flags.StringP(namespaceFlag, "n", "", "")
	flags.BoolP(allNamespacesFlag, "A", false, "")
	for _, name := range []string{namespaceFlag, allNamespacesFlag} {
		flags.Lookup(name).Hidden = true
	}
}

// refuseNamespace returns an error if such a flag is given.
func refuseNamespace(cmd *cobra.Command) error {
	for _, name := range []string{namespaceFlag, allNamespacesFlag} {
		global := cmd.Root().PersistentFlags().Lookup(name)
		if given := cmd.Flags().Lookup(name); given == global && given.Changed {
			return fmt.Errorf("nodes are in no namespace, so --%s means nothing here: if records and transactions are not where they are by default, give --metadata-namespace and --transaction-namespace", name)
		}
	}
	return nil
}

// adviceOnFlag says what to do about an error in the flags.
func adviceOnFlag(cmd *cobra.Command, err error) string {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if alike := similar(unknown.GetSpecifiedName(), names); len(alike) > 0 {
			return "did you mean --" + strings.Join(alike, " or --") + "?"
		}
	}
	return "see " + cmd.CommandPath() + " --help"
}

// similar returns the names that somebody may have meant, by cobra's rules for commands: those that
// begin like that, or else those with the fewest letters wrong.
func similar(name string, names []string) []string {
	all := &cobra.Command{}
	for _, one := range names {
		all.AddCommand(&cobra.Command{Use: one, Run: func(*cobra.Command, []string) {}})
	}
	for typos := range min(maxTypos+1, len(name)) { // a short name is like everything
		all.SuggestionsMinimumDistance = typos
		if alike := all.SuggestionsFor(name); len(alike) > 0 {
			return alike
		}
	}
	return nil
}

// logLibraries has the libraries log to w, at a level above zero: client-go logs each request at 6.
func logLibraries(w io.Writer, level int) {
	if level <= 0 {
		return
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(level)) // a number is one of its values
	klog.LogToStderr(false)
	klog.SetOutput(w)
	klog.ClearLogger()
}
