package command

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

	"nodekeeper.dev/internal/daemon/command/typo"
)

func (p *Plugin) addFlags(flags *pflag.FlagSet) {
	flags.IntVarP(&p.verbosity, "v", "v", 0, "Log what the libraries do: 6 logs each request, 8 with its body.")
	p.Connection.AddFlags(flags)
}

// logBefore makes all commands log at the level of -v.
func (p *Plugin) logBefore(root *cobra.Command) {
	next := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		logLibraries(p.ErrOut, p.verbosity)
		if next == nil {
			return nil
		}
		return next(cmd, args)
	}
}

// logLibraries writes the logs of libraries to w if level is positive: client-go logs requests at 6.
func logLibraries(w io.Writer, level int) {
	if level <= 0 {
		return
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(level)) // any number is valid
	klog.LogToStderr(false)
	klog.SetOutput(w)
	klog.ClearLogger()
}

// newOptionsCommand returns the command that lists the global flags, like kubectl options.
func newOptionsCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that every command has",
		Long:  "List the flags that every command has. Flags of kubectl, such as --context, mean the same here.",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), "These flags can be given to every command:\n\n"+root.PersistentFlags().FlagUsages())
			return err
		},
	}
}

// hideGlobalFlags omits from help the flags that the command options lists.
func hideGlobalFlags(root *cobra.Command) {
	usage := root.UsageTemplate()
	for before, after := range map[string]string{
		"{{if .HasAvailableLocalFlags}}":                                          "{{if and .HasParent .HasAvailableLocalFlags}}",
		"{{if .HasAvailableInheritedFlags}}":                                      "{{if true}}",
		"Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}": `Use "` + root.CommandPath() + ` options" for the flags that every command has.`,
	} {
		usage = strings.ReplaceAll(usage, before, after)
	}
	root.SetUsageTemplate(usage)
}

// refuseUnknownHelp makes the command help fail for a command that does not exist. By default, cobra
// shows the help of the root command.
func refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	topic := func(_ *cobra.Command, args []string) error {
		if found, _, err := root.Find(args); err != nil || found != root {
			return err
		}
		return subcommand(root, args)
	}
	for _, command := range root.Commands() {
		if command.Name() == "help" {
			command.Args = topic
		}
	}
}

// explainFlag adds advice to an error about a flag.
func explainFlag(cmd *cobra.Command, err error) error {
	advice := seeHelp(cmd)
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		advice = typo.Advice(unknown.GetSpecifiedName(), names, "--", advice)
	}
	return fmt.Errorf("%w: %s", err, advice)
}

func seeHelp(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }
