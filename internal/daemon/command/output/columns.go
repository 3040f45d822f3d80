package output

import (
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
)

// formatColumns precedes =HEADER:PATH,HEADER:PATH…, as in kubectl.
const formatColumns = "custom-columns"

// customColumn is a column with the path of its values.
type customColumn struct {
	header string
	path   *jsonpath.JSONPath
}

// isColumns reports whether a format is custom-columns, and returns its specification.
func isColumns(format string) (spec string, ok bool) {
	name, spec, _ := strings.Cut(format, "=")
	return spec, name == formatColumns
}

// parseColumns returns the columns of a specification.
func parseColumns(spec string) ([]customColumn, error) {
	if spec == "" {
		return nil, errors.New("-o custom-columns needs columns, as in -o custom-columns=NAME:.name,STATE:.state")
	}
	var columns []customColumn
	for item := range strings.SplitSeq(spec, ",") {
		header, path, ok := strings.Cut(item, ":")
		if !ok || header == "" || path == "" {
			return nil, fmt.Errorf("-o custom-columns: %q is not HEADER:PATH, as in NAME:.name", item)
		}
		column := customColumn{header: header, path: jsonpath.New(header).AllowMissingKeys(true)}
		if err := column.path.Parse("{" + relaxed(path) + "}"); err != nil {
			return nil, fmt.Errorf("-o custom-columns: the path of %s: %w", header, err)
		}
		columns = append(columns, column)
	}
	return columns, nil
}

// relaxed completes a path like kubectl: name and {.name} mean .name.
func relaxed(path string) string {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "{"), "}")
	if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "[") {
		path = "." + path
	}
	return path
}

// printColumns prints a line for each item, or for the object itself if it is not a list.
func (o *Flags) printColumns(w io.Writer, spec string, object map[string]any) error {
	columns, err := parseColumns(spec)
	if err != nil {
		return err
	}
	items, isList := object["items"].([]any)
	if !isList {
		items = []any{object}
	}
	table := &metav1.Table{}
	for _, column := range columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: column.header, Type: "string"})
	}
	for _, item := range items {
		row := metav1.TableRow{}
		for _, column := range columns {
			row.Cells = append(row.Cells, column.of(item))
		}
		table.Rows = append(table.Rows, row)
	}
	return o.TablePrinter().PrintObj(table, w)
}

// of returns the cell of an item.
func (c customColumn) of(item any) string {
	found, err := c.path.FindResults(item)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return "<none>"
	}
	var values []string
	for _, value := range found[0] {
		values = append(values, fmt.Sprint(value.Interface()))
	}
	return strings.Join(values, ",")
}
