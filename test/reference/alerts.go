package reference

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/test/repository"
)

// Alerts returns a table of the alerts in a PrometheusRule, whose file is relative to the root of the
// repository. Each links to its section on the same page; test/monitoring checks that it exists.
func Alerts(t *testing.T, file string) string {
	t.Helper()
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, For          string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(read(t, file), &rules))
	var table strings.Builder
	table.WriteString("| alert | severity | after | |\n| --- | --- | --- | --- |\n")
	rows := 0
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			rows++
			_, _ = fmt.Fprintf(&table, "| [%s](#%s) | %s | %s | %s |\n",
				rule.Alert, strings.ToLower(rule.Alert), rule.Labels["severity"], cmp.Or(rule.For, "at once"), rule.Annotations["summary"])
		}
	}
	assert.Greater(t, rows, 5)
	return table.String()
}

// MetricsIn returns the metrics that the rules and the dashboard in a directory use, without duplicates.
// All their names must match the pattern; test/monitoring checks that.
func MetricsIn(t *testing.T, dir string, pattern *regexp.Regexp) []string {
	t.Helper()
	var names []string
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		names = append(names, pattern.FindAllString(string(read(t, dir+"/"+file)), -1)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	require.Greater(t, len(names), 8)
	return names
}

// read returns what is in a file of the repository.
func read(t *testing.T, file string) []byte {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	require.NoError(t, err)
	return content
}
