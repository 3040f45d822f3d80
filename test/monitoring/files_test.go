package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/test/monitoring/grafana"
)

// promql is the language of a Prometheus without experimental features.
var promql = parser.NewParser(parser.Options{})

// read returns what is in a file of deploy/monitoring.
func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "monitoring", name))
	require.NoError(t, err)
	return content
}

// prometheusRule returns the alerts.
func prometheusRule(t *testing.T) monitoringv1.PrometheusRule {
	t.Helper()
	var rule monitoringv1.PrometheusRule
	require.NoError(t, yaml.UnmarshalStrict(read(t, "rules.yaml"), &rule))
	return rule
}

// alerts returns every alert by its name.
func alerts(t *testing.T) map[string]monitoringv1.Rule {
	t.Helper()
	all := map[string]monitoringv1.Rule{}
	for _, group := range prometheusRule(t).Spec.Groups {
		for _, rule := range group.Rules {
			require.NotContains(t, all, rule.Alert)
			all[rule.Alert] = rule
		}
	}
	require.NotEmpty(t, all)
	return all
}

func panels(t *testing.T) []grafana.Panel {
	t.Helper()
	dashboard, err := grafana.Parse(read(t, "dashboard.json"))
	require.NoError(t, err)
	require.NotEmpty(t, dashboard.Panels)
	return dashboard.Panels
}

// expressions returns every expression, by where it is. The variables of Grafana have a value.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, alert := range alerts(t) {
		all["alert "+name] = alert.Expr.String()
	}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			all["panel "+p.Title+": "+target.Expr] = target.Query(grafana.Interval{Step: time.Minute, Scrape: 30 * time.Second})
		}
	}
	return all
}

// ours are the metrics that test/deploy looks for at the programs: see its monitoring_test.go.
var ours = regexp.MustCompile(`^(nodekeeper|process|rest_client|workqueue)_[a-z_]+$`)

func TestEveryExpressionIsOneOfPrometheus(t *testing.T) {
	for where, text := range expressions(t) {
		expr, err := promql.ParseExpr(text)
		if !assert.NoError(t, err, where) {
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				assert.Regexp(t, ours, selector.Name, where)
			}
			return nil
		})
	}
}

func TestPodMonitorIsOneOfTheOperator(t *testing.T) {
	var pods monitoringv1.PodMonitor
	require.NoError(t, yaml.UnmarshalStrict(read(t, "podmonitor.yaml"), &pods))
	require.Len(t, pods.Spec.PodMetricsEndpoints, 1)
	assert.Equal(t, "metrics", *pods.Spec.PodMetricsEndpoints[0].Port)
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	runbook, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "alerts.md"))
	require.NoError(t, err)
	sections := slices.DeleteFunc(strings.Split(string(runbook), "\n"), func(line string) bool { return !strings.HasPrefix(line, "#") })
	for name, alert := range alerts(t) {
		assert.NotEmpty(t, alert.Annotations["summary"], name)
		assert.NotEmpty(t, alert.Annotations["description"], name)
		assert.Contains(t, []string{"warning", "critical"}, alert.Labels["severity"], name)
		file, anchor, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
		assert.True(t, strings.HasSuffix(file, "/docs/reference/alerts.md"), name)
		assert.Equal(t, strings.ToLower(name), anchor, "the heading of %s", name)
		assert.Contains(t, sections, "## "+name, "in docs/reference/alerts.md")
	}
}

// TestEveryValueHasItsColour: without thresholds, Grafana shows 80 and more on red.
func TestEveryValueHasItsColour(t *testing.T) {
	for _, p := range panels(t) {
		if p.Type == grafana.Stat {
			assert.NotEmpty(t, p.FieldConfig.Defaults.Thresholds.Steps, p.Title)
		}
	}
}

// TestPictureKnowsTheUnits: make monitoring DRAW=1 would leave out another one.
func TestPictureKnowsTheUnits(t *testing.T) {
	for _, p := range panels(t) {
		if p.Type != grafana.Row {
			assert.True(t, grafana.Known(p.FieldConfig.Defaults.Unit), "%s has the unit %q", p.Title, p.FieldConfig.Defaults.Unit)
		}
	}
}

func TestDashboardFitsTheScreen(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range panels(t) {
		if p.Type != grafana.Row {
			assert.NotEmpty(t, p.Description, p.Title)
			assert.NotEmpty(t, p.Targets, p.Title)
		}
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, grafana.Columns, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%s is over it", p.Title)
				taken[at] = p.Title
			}
		}
	}
}
