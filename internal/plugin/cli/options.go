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

	"nodekeeper.dev/internal/plugin/cli/typo"
)

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

// refuseUnknownHelp has the command help refuse the names of commands that do not exist. Cobra's own
// shows the help of the plugin instead.
func refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	known := func(_ *cobra.Command, args []string) error {
		if topic, _, err := root.Find(args); err != nil || topic != root {
			return err
		}
		return aCommand(root, args)
	}
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			command.Args = known
		}
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
	advice := "see " + cmd.CommandPath() + " --help"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		return typo.Advice(unknown.GetSpecifiedName(), names, "--", advice)
	}
	return advice
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
