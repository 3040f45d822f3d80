package cli

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
)

// outputVersion is the apiVersion of what -o yaml and -o json print.
const outputVersion = "cli.nodekeeper.dev/v1alpha1"

// The formats that are for people.
const (
	formatTable = "table"
	formatWide  = "wide"
)

// output is the flags that say how to print, and what prints.
type output struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
}

// view is what a command shows.
type view struct {
	// Kind and data are what yaml, json and templates are made from. Data is a struct.
	kind string
	data any
	// Names are those of the nodes, for -o name.
	names []string
	// Table is for people; if it is nil, text is.
	table *metav1.Table
	text  func(io.Writer)
}

func (o *output) addFlags(cmd *cobra.Command) {
	o.flags = genericclioptions.NewPrintFlags("")
	o.flags.AddFlags(cmd)
	formats := slices.Concat([]string{formatTable, formatWide}, o.flags.AllowedFormats())
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	cmd.Flag("template").Hidden = true            // its short way is -o go-template=…
	cmd.Flag("show-managed-fields").Hidden = true // there are none
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Print no headers above a table.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// isForPeople says whether the format is no data.
func (o *output) isForPeople() bool {
	return slices.Contains([]string{"", formatTable, formatWide}, *o.flags.OutputFormat)
}

func (o *output) print(w io.Writer, v view) error {
	switch {
	case *o.flags.OutputFormat == "name":
		for _, name := range v.names {
			_, _ = fmt.Fprintln(w, namePrefix+name)
		}
		return nil
	case !o.isForPeople():
		return o.printData(w, v)
	case v.table != nil:
		return o.tablePrinter().PrintObj(v.table, w)
	}
	v.text(w)
	return nil
}

func (o *output) printData(w io.Writer, v view) error {
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.data)
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(outputVersion)
	object.SetKind(v.kind)
	return printer.PrintObj(object, w)
}

func (o *output) tablePrinter() printers.ResourcePrinter {
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, Wide: *o.flags.OutputFormat == formatWide})
}

// columns describes the columns of a table. A name that begins with a plus is shown by -o wide only.
func columns(names ...string) []metav1.TableColumnDefinition {
	definitions := make([]metav1.TableColumnDefinition, len(names))
	for i, name := range names {
		name, isWide := strings.CutPrefix(name, "+")
		definitions[i] = metav1.TableColumnDefinition{Name: name, Type: "string"}
		if isWide {
			definitions[i].Priority = 1
		}
	}
	return definitions
}

// listed returns the items, and as an empty list if there are none: data has no null where a list is to be.
func listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// lineFunc writes a line that says something by name.
type lineFunc func(name, format string, args ...any)

// lines returns what writes such lines, with what they say in one column.
func lines(w io.Writer) lineFunc {
	return func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-16s%s\n", name+":", fmt.Sprintf(format, args...))
	}
}

// none is what a table shows where there is nothing.
const none = "-"

// ageOf returns how long ago that was, as kubectl shows it.
func ageOf(t *metav1.Time, now time.Time) string {
	if t.IsZero() {
		return none
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// orNone returns the text, or what a table shows if there is none.
func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

// count returns a number of things, as in "1 label" and "2 labels".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
