package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The table of values in the README is between these lines.
const (
	tableBegin = "<!-- make generate makes this table from values.yaml -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// readme returns the chart's README with a table generated from its values.yaml.
func readme(chart string) ([]byte, error) {
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(chart, "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	before, rest, found := bytes.Cut(page, []byte(tableBegin))
	_, after, ends := bytes.Cut(rest, []byte(tableEnd))
	if !found || !ends {
		return nil, fmt.Errorf("%s has no lines %q and %q", path, tableBegin, tableEnd)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	table := &bytes.Buffer{}
	table.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	if err := rows(table, "", document.Content[0]); err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	return bytes.Join([][]byte{before, []byte(tableBegin), table.Bytes(), []byte(tableEnd), after}, nil), nil
}

// rows writes a row for each value that has a description. For a map without a description, it
// describes the fields.
func rows(table *bytes.Buffer, prefix string, fields *yaml.Node) error {
	for i := 0; i < len(fields.Content); i += 2 {
		key, value := fields.Content[i], fields.Content[i+1]
		name := prefix + key.Value
		// A comment separated from the key by an empty line does not describe the key.
		comment := key.HeadComment[strings.LastIndex(key.HeadComment, "\n\n")+1:]
		description := strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll("\n"+strings.TrimSpace(comment), "\n# ", " "), "\n", " "))
		if description == "" {
			if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
				return fmt.Errorf("%s has no description", name)
			}
			if err := rows(table, name+".", value); err != nil {
				return err
			}
			continue
		}
		var content any
		if err := value.Decode(&content); err != nil {
			return err
		}
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(table, "| `%s` | `%s` | %s |\n", name, text, description)
	}
	return nil
}
