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

// product has alerts and a dashboard of its own.
type product struct {
	name string
	// deploy is the directory of its monitoring, runbook the page of its alerts, and picture that
	// of its dashboard, from the root of the repository.
	deploy, runbook, picture string
	// metrics matches the metrics that its programs have.
	metrics *regexp.Regexp
	// healthy is what Prometheus scrapes where all is well, and changes are other samples of some
	// series by the alert that they cause.
	healthy map[string]string
	changes map[string]map[string]string
}

func products() []product { return []product{keeper, sharder, placement} }

// file returns what is in a file of the repository.
func file(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return content
}

// read returns what is in a file of the product's monitoring.
func (p product) read(t *testing.T, name string) []byte {
	t.Helper()
	return file(t, p.deploy+"/"+name)
}

// prometheusRule returns the alerts.
func (p product) prometheusRule(t *testing.T) monitoringv1.PrometheusRule {
	t.Helper()
	var rule monitoringv1.PrometheusRule
	require.NoError(t, yaml.UnmarshalStrict(p.read(t, "rules.yaml"), &rule))
	return rule
}

// alerts returns every alert by its name.
func (p product) alerts(t *testing.T) map[string]monitoringv1.Rule {
	t.Helper()
	all := map[string]monitoringv1.Rule{}
	for _, group := range p.prometheusRule(t).Spec.Groups {
		for _, rule := range group.Rules {
			require.NotContains(t, all, rule.Alert)
			all[rule.Alert] = rule
		}
	}
	require.NotEmpty(t, all)
	return all
}

func (p product) panels(t *testing.T) []grafana.Panel {
	t.Helper()
	dashboard, err := grafana.Parse(p.read(t, "dashboard.json"))
	require.NoError(t, err)
	require.NotEmpty(t, dashboard.Panels)
	return dashboard.Panels
}

// expressions returns every expression, by where it is. The variables of Grafana have a value.
func (p product) expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, alert := range p.alerts(t) {
		all["alert "+name] = alert.Expr.String()
	}
	for _, panel := range p.panels(t) {
		for _, target := range panel.Targets {
			all["panel "+panel.Title+": "+target.Expr] = target.Query(grafana.Interval{Step: time.Minute, Scrape: 30 * time.Second})
		}
	}
	return all
}

func TestEveryExpressionIsOneOfPrometheus(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			for where, text := range p.expressions(t) {
				expr, err := promql.ParseExpr(text)
				if !assert.NoError(t, err, where) {
					continue
				}
				parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
					if selector, ok := node.(*parser.VectorSelector); ok {
						assert.Regexp(t, p.metrics, selector.Name, where)
					}
					return nil
				})
			}
		})
	}
}

func TestPodMonitorIsOneOfTheOperator(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			var pods monitoringv1.PodMonitor
			require.NoError(t, yaml.UnmarshalStrict(p.read(t, "podmonitor.yaml"), &pods))
			require.Len(t, pods.Spec.PodMetricsEndpoints, 1)
			assert.Equal(t, "metrics", *pods.Spec.PodMetricsEndpoints[0].Port)
		})
	}
}

func TestEveryAlertHasARunbook(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			sections := slices.DeleteFunc(strings.Split(string(file(t, p.runbook)), "\n"), func(line string) bool { return !strings.HasPrefix(line, "#") })
			for name, alert := range p.alerts(t) {
				assert.NotEmpty(t, alert.Annotations["summary"], name)
				assert.NotEmpty(t, alert.Annotations["description"], name)
				assert.Contains(t, []string{"warning", "critical"}, alert.Labels["severity"], name)
				page, anchor, _ := strings.Cut(alert.Annotations["runbook_url"], "#")
				assert.True(t, strings.HasSuffix(page, "/"+p.runbook), name)
				assert.Equal(t, strings.ToLower(name), anchor, "the heading of %s", name)
				assert.Contains(t, sections, "## "+name, "in %s", p.runbook)
			}
		})
	}
}

// TestEveryValueHasItsColour: without thresholds, Grafana shows 80 and more on red.
func TestEveryValueHasItsColour(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			for _, panel := range p.panels(t) {
				if panel.Type == grafana.Stat {
					assert.NotEmpty(t, panel.FieldConfig.Defaults.Thresholds.Steps, panel.Title)
				}
			}
		})
	}
}

// TestPictureKnowsTheUnits: make monitoring DRAW=1 would leave out another one.
func TestPictureKnowsTheUnits(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			for _, panel := range p.panels(t) {
				if panel.Type != grafana.Row {
					assert.True(t, grafana.Known(panel.FieldConfig.Defaults.Unit), "%s has the unit %q", panel.Title, panel.FieldConfig.Defaults.Unit)
				}
			}
		})
	}
}

func TestDashboardFitsTheScreen(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			taken := map[[2]int]string{}
			for _, panel := range p.panels(t) {
				if panel.Type != grafana.Row {
					assert.NotEmpty(t, panel.Description, panel.Title)
					assert.NotEmpty(t, panel.Targets, panel.Title)
				}
				at := panel.GridPos
				assert.LessOrEqual(t, at.X+at.W, grafana.Columns, panel.Title)
				for x := range at.W {
					for y := range at.H {
						place := [2]int{at.X + x, at.Y + y}
						require.Empty(t, taken[place], "%s is over it", panel.Title)
						taken[place] = panel.Title
					}
				}
			}
		})
	}
}
