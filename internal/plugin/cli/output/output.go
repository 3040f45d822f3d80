// Package output prints what commands of the plugin show: tables for people, data for programs, and
// changes of labels.
package output

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"nodekeeper.dev/internal/plugin/cli/typo"
)

// Version is the apiVersion of what -o yaml and -o json print.
const Version = "cli.nodekeeper.dev/v1alpha1"

// NamePrefix is what -o name prints before the name of a node.
const NamePrefix = "node/"

// The formats that are not data: those for people, and the names of the nodes.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatName  = "name"
)

// Flags are the flags that say how to print, and what prints. Use AddFlags first.
type Flags struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
}

// View is what a command shows.
type View struct {
	// Kind and data are what yaml, json and templates are made from. Data is a struct.
	Kind string
	Data any
	// Names are those of the nodes, for -o name. If they are of something else, NamePrefix is what is
	// printed before each.
	Names      []string
	NamePrefix string
	// Table is for people; if it is nil, text is.
	Table *metav1.Table
	Text  func(io.Writer)
}

// AddFlags adds the flags to a command, which does not begin with a format that there is not.
func (o *Flags) AddFlags(cmd *cobra.Command) {
	o.flags = genericclioptions.NewPrintFlags("")
	o.flags.AddFlags(cmd)
	formats := o.formats()
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.validate() }
	cmd.Flag("template").Hidden = true            // its short way is -o go-template=…
	cmd.Flag("show-managed-fields").Hidden = true // there are none
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print no headers above a table.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// formats returns the formats that there are, those for people first.
func (o *Flags) formats() []string {
	return slices.Concat([]string{formatTable, formatWide}, o.flags.AllowedFormats(), []string{formatColumns})
}

// validate returns an error if there is no format as the flags say.
func (o *Flags) validate() error {
	if o.ForPeople() || *o.flags.OutputFormat == formatName {
		return nil
	}
	if spec, ok := isColumns(*o.flags.OutputFormat); ok {
		_, err := parseColumns(spec)
		return err
	}
	_, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		given, _, _ := strings.Cut(*o.flags.OutputFormat, "=")
		return fmt.Errorf("-o %s is not known: %s", given, typo.Advice(given, o.formats(), "", "use "+strings.Join(o.formats(), ", ")))
	}
	return err
}

// ForPeople reports whether the format is no data.
func (o *Flags) ForPeople() bool {
	return slices.Contains([]string{"", formatTable, formatWide}, *o.flags.OutputFormat)
}

// Wide reports whether the format is that for people with more in it.
func (o *Flags) Wide() bool { return *o.flags.OutputFormat == formatWide }

// Format returns what -o says.
func (o *Flags) Format() string { return *o.flags.OutputFormat }

// Print prints a view in the format that the flags say.
func (o *Flags) Print(w io.Writer, v View) error {
	switch {
	case *o.flags.OutputFormat == formatName:
		for _, name := range v.Names {
			_, _ = fmt.Fprintln(w, cmp.Or(v.NamePrefix, NamePrefix)+name)
		}
		return nil
	case !o.ForPeople():
		return o.printData(w, v)
	case v.Table != nil:
		return o.TablePrinter().PrintObj(v.Table, w)
	}
	v.Text(w)
	return nil
}

func (o *Flags) printData(w io.Writer, v View) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.Data)
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if spec, ok := isColumns(*o.flags.OutputFormat); ok {
		return o.printColumns(w, spec, fields)
	}
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(Version)
	object.SetKind(v.Kind)
	return printer.PrintObj(object, w)
}

// TablePrinter returns what prints tables as the flags say.
func (o *Flags) TablePrinter() printers.ResourcePrinter {
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, Wide: o.Wide()})
}

// Columns describes the columns of a table. A name that begins with a plus is shown by -o wide
// only.
func Columns(names ...string) []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, len(names))
	for i, name := range names {
		name, wide := strings.CutPrefix(name, "+")
		definitions[i] = metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide {
			definitions[i].Priority = 1
		}
	}
	return definitions
}

// Listed returns the items, and as an empty list if there are none: data has no null where a list
// is to be.
func Listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// LineFunc writes a line that says something by name.
type LineFunc func(name, format string, args ...any)

// Lines returns what writes such lines, with what they say in one column.
func Lines(w io.Writer) LineFunc {
	return func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-16s%s\n", name+":", fmt.Sprintf(format, args...))
	}
}

// None is what a table shows where there is nothing.
const None = "-"

// AgeOf returns how long ago that was, as kubectl shows it.
func AgeOf(t *metav1.Time, now time.Time) string {
	if t.IsZero() {
		return None
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// OrNone returns the text, or what a table shows if there is none.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}
