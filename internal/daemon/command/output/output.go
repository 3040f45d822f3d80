// Package output prints the result of a command in the formats of kubectl get: tables and text for
// people, and data for programs.
package output

import (
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

	"nodekeeper.dev/internal/daemon/command/typo"
)

// Version is the apiVersion in the output of -o yaml and -o json.
const Version = "cli.nodekeeper.dev/v1alpha1"

// The formats that are not data.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatName  = "name"
)

// Flags are the flags that select a format. Call AddFlags before any other method.
type Flags struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
}

// View is the result of a command.
type View struct {
	// Kind and Data, a pointer to a struct, are the input of yaml, json and templates.
	Kind string
	Data any
	// Names are the lines of -o name, which begin with NamePrefix, such as "node/".
	Names      []string
	NamePrefix string
	// Table is for people. If it is nil, Text is.
	Table *metav1.Table
	Text  func(io.Writer)
}

// AddFlags adds the flags to a command. An unknown format is an error before the command begins.
func (o *Flags) AddFlags(cmd *cobra.Command) {
	o.flags = genericclioptions.NewPrintFlags("")
	o.flags.AddFlags(cmd)
	formats := o.formats()
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.validate() }
	cmd.Flag("template").Hidden = true            // -o go-template=… is shorter
	cmd.Flag("show-managed-fields").Hidden = true // a View has none
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print no headers above a table.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// formats returns all formats, beginning with the ones for people.
func (o *Flags) formats() []string {
	return slices.Concat([]string{formatTable, formatWide}, o.flags.AllowedFormats(), []string{formatColumns})
}

// validate returns an error if the format does not exist.
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
		format, _, _ := strings.Cut(*o.flags.OutputFormat, "=")
		return fmt.Errorf("-o %s is not known: %s", format, typo.Advice(format, o.formats(), "", "use "+strings.Join(o.formats(), ", ")))
	}
	return err
}

// ForPeople reports whether the format is a table or text.
func (o *Flags) ForPeople() bool {
	return slices.Contains([]string{"", formatTable, formatWide}, *o.flags.OutputFormat)
}

// Wide reports whether the format is wide, which adds columns and lines for people.
func (o *Flags) Wide() bool { return *o.flags.OutputFormat == formatWide }

// Format returns the value of -o.
func (o *Flags) Format() string { return *o.flags.OutputFormat }

// Print prints a view in the selected format.
func (o *Flags) Print(w io.Writer, v View) error {
	switch {
	case *o.flags.OutputFormat == formatName:
		for _, name := range v.Names {
			_, _ = fmt.Fprintln(w, v.NamePrefix+name)
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

// TablePrinter returns a printer of tables that follows the flags.
func (o *Flags) TablePrinter() printers.ResourcePrinter {
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, Wide: o.Wide()})
}

// Columns describes the columns of a table. Columns whose names begin with a plus are in -o wide only.
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

// Listed returns the items, or an empty list instead of nil: data must have [] and not null.
func Listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// LineFunc writes a line with a name and a value.
type LineFunc func(name, format string, args ...any)

// Lines returns a LineFunc that aligns the values.
func Lines(w io.Writer) LineFunc {
	return func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-16s%s\n", name+":", fmt.Sprintf(format, args...))
	}
}

// None stands for an empty cell of a table.
const None = "-"

// AgeOf returns the time since t as kubectl prints ages, or None.
func AgeOf(t *metav1.Time, now time.Time) string {
	if t.IsZero() {
		return None
	}
	return duration.HumanDuration(max(0, now.Sub(t.Time))) // other clocks may be ahead
}

// OrNone returns the text, or None if it is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}
