package helm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"nodekeeper.dev/test/reference"
)

// TestReferenceHasTheValues compares the table in the README of each chart with its values.yaml.
func TestReferenceHasTheValues(t *testing.T) {
	for _, dir := range chartDirs {
		text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
		require.NoError(t, err)
		var document yaml.Node
		require.NoError(t, yaml.Unmarshal(text, &document))
		table := &strings.Builder{}
		table.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
		require.NoError(t, rows(table, "", document.Content[0]))
		page, err := filepath.Rel(filepath.Join("..", ".."), filepath.Join(dir, "README.md"))
		require.NoError(t, err)
		reference.Check(t, filepath.ToSlash(page), "values", table.String())
	}
}

// rows writes a row for each value that has a description. For a map without a description, it
// describes the fields.
func rows(table *strings.Builder, prefix string, fields *yaml.Node) error {
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
