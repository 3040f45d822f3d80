package monitoring_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestHealthyClusterRaisesNoAlert(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			for minute, names := range p.firing(t, p.healthy) {
				assert.Empty(t, names, "in minute %d", minute)
			}
		})
	}
}

func TestEachTroubleRaisesItsAlertOnly(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name, func(t *testing.T) {
			assert.ElementsMatch(t, slices.Collect(maps.Keys(p.alerts(t))), slices.Collect(maps.Keys(p.changes)), "the alerts that are tested")
			for name, change := range p.changes {
				t.Run(name, func(t *testing.T) {
					series := maps.Clone(p.healthy)
					for one, samples := range change {
						require.Contains(t, p.healthy, one)
						series[one] = samples
					}
					all := p.firing(t, series)
					assert.Equal(t, []string{name}, all[len(all)-1], "in the last minute")
				})
			}
		})
	}
}

// firing evaluates the rules each minute for three hours and returns the names of the alerts that
// fire.
func (p product) firing(t *testing.T, series map[string]string) [][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	content, err := yaml.Marshal(p.prometheusRule(t).Spec)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	lines := []string{"load 1m"}
	for one, samples := range series {
		lines = append(lines, "  "+one+" "+samples)
	}
	suite, err := promqltest.NewLazyLoader(strings.Join(lines, "\n"), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, suite.Close()) }()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		Appendable: suite.Storage(), Context: t.Context(), Logger: promslog.NewNopLogger(), Parser: promql,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	require.Empty(t, errs)
	var all [][]string
	for minute := range 180 {
		now := time.Unix(0, 0).UTC().Add(time.Duration(minute) * time.Minute)
		names := []string{}
		suite.WithSamplesTill(now, func(err error) {
			require.NoError(t, err)
			for _, group := range groups {
				group.Eval(suite.Context(), now)
				for _, rule := range group.AlertingRules() {
					require.NoError(t, rule.LastError(), rule.Name())
					if rule.State() == rules.StateFiring {
						names = append(names, rule.Name())
					}
					for _, alert := range rule.ActiveAlerts() {
						assert.NotContains(t, alert.Annotations.String(), "error expanding template", rule.Name())
					}
				}
			}
		})
		slices.Sort(names)
		all = append(all, names)
	}
	return all
}
