package reference

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// exposed is a metric as programs serve it.
type exposed struct {
	kind, help string
	programs   []string
	// labels has the values that there are of each label.
	labels map[string]map[string]bool
}

// ofTheBuild are the labels whose values are different in each build.
var ofTheBuild = []string{"program", "version", "commit", "goversion"}

// flagInText matches a flag of a program in the help of a metric.
var flagInText = regexp.MustCompile(`--[a-z]+[a-z=-]*[a-z]`)

// Exposed returns a table of the metrics with a prefix that programs serve, by the name of the
// program. A metric that a program serves only once it has happened is missing, so programs must
// serve all of them from the start.
func Exposed(t *testing.T, prefix string, served map[string]string) string {
	t.Helper()
	all := map[string]*exposed{}
	for _, program := range slices.Sorted(maps.Keys(served)) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(served[program]))
		require.NoError(t, err)
		for name, family := range families {
			if strings.HasPrefix(name, prefix) {
				add(all, program, family)
			}
		}
	}
	var table strings.Builder
	table.WriteString("| metric | type | by | labels | |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		_, _ = fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, strings.Join(m.programs, ", "), m.labelsText(), flagInText.ReplaceAllString(m.help, "`$0`"))
	}
	return table.String()
}

func add(all map[string]*exposed, program string, family *dto.MetricFamily) {
	m := all[family.GetName()]
	if m == nil {
		m = &exposed{kind: strings.ToLower(family.GetType().String()), help: family.GetHelp(), labels: map[string]map[string]bool{}}
		all[family.GetName()] = m
	}
	m.programs = append(m.programs, program)
	for _, one := range family.GetMetric() {
		for _, label := range one.GetLabel() {
			if m.labels[label.GetName()] == nil {
				m.labels[label.GetName()] = map[string]bool{}
			}
			m.labels[label.GetName()][label.GetValue()] = true
		}
	}
}

func (m *exposed) labelsText() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(m.labels)) {
		text := "`" + name + "`"
		if !slices.Contains(ofTheBuild, name) {
			text += ": " + strings.Join(slices.Sorted(maps.Keys(m.labels[name])), ", ")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
