package monitoring_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscaling "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/test/pages"
)

// placement is placement. TestMetricsOfTheAlertsAreExported in placement/test/controller looks for
// its metrics at the program.
var placement = product{
	name: "placement", deploy: "placement/deploy/monitoring", runbook: "placement/docs/alerts.md", picture: "placement/docs/pictures/dashboard.svg",
	metrics: regexp.MustCompile(`^(nodekeeper_build_info|(placement|process)_[a-z_]+)$`),
	healthy: healthyPlacement, changes: changesOfPlacement,
}

// healthyPlacement is a cluster with two controllers, the first of which leads, and a pool. One of
// its pods dies, and its work waits for it, moves, and is acknowledged. Samples are one minute
// apart.
var healthyPlacement = map[string]string{
	`nodekeeper_build_info{program="placement-controller",pod="c0"}`: "1+0x180",
	`nodekeeper_build_info{program="placement-controller",pod="c1"}`: "1+0x180",
	`placement_pods_wanted{pod="c0",pool="worker"}`:                  "0 4+0x179",
	`placement_pods{pod="c0",pool="worker",state="open"}`:            "0 4+0x59 3+0x119",
	`placement_vreplicas{pod="c0",pool="worker",state="wanted"}`:     "0 12+0x179",
	`placement_vreplicas{pod="c0",pool="worker",state="pending"}`:    "0 12 0+0x58 3 3 3 0+0x116",
	`placement_vreplicas{pod="c0",pool="worker",state="stopping"}`:   "0+0x60 1 0+0x118",
	`placement_vreplicas{pod="c0",pool="worker",state="failing"}`:    "0+0x60 1 1 1 0+0x116",
	`placement_not_acknowledged_seconds_max{pod="c0",pool="worker"}`: "0+0x60 30 60 90 0+0x116",
	`placement_contract_bytes_max{pod="c0",pool="worker"}`:           "0 400000+0x59 800000 400000+0x118",
}

// changesOfPlacement are the failures, by the alert that reports each.
var changesOfPlacement = map[string]map[string]string{
	"NoPlacementController":   {`placement_pods_wanted{pod="c0",pool="worker"}`: "4+0x60 stale _x118"},
	"VReplicasPending":        {`placement_vreplicas{pod="c0",pool="worker",state="pending"}`: "0+0x170 3+0x9"},
	"ContractNotAcknowledged": {`placement_not_acknowledged_seconds_max{pod="c0",pool="worker"}`: "0+0x170 0+60x9"},
	"VReplicasStopping":       {`placement_vreplicas{pod="c0",pool="worker",state="stopping"}`: "0+0x170 1+0x9"},
	"VReplicasFailing":        {`placement_vreplicas{pod="c0",pool="worker",state="failing"}`: "0+0x170 1+0x9"},
	"ContractAlmostFull":      {`placement_contract_bytes_max{pod="c0",pool="worker"}`: "0+0x170 740000+0x9"},
}

// TestNewLeaderOfPlacementKeepsAnAlert: its series have another pod, and those of the former leader
// end.
func TestNewLeaderOfPlacementKeepsAnAlert(t *testing.T) {
	series := maps.Clone(healthyPlacement)
	for _, metric := range []string{`placement_pods_wanted{pod="%",pool="worker"}`, `placement_vreplicas{pod="%",pool="worker",state="pending"}`} {
		series[strings.ReplaceAll(metric, "%", "c0")] = "3+0x120 stale _x58"
		series[strings.ReplaceAll(metric, "%", "c1")] = "_x121 3+0x58"
	}
	all := placement.firing(t, series)
	assert.Equal(t, []string{"VReplicasPending"}, all[len(all)-1])
}

// autoscaler has what a manifest of placement/docs/how-to.md has of a ScaledObject of KEDA, of the
// configuration of prometheus-adapter, and of a HorizontalPodAutoscaler.
type autoscaler struct {
	ExternalRules []struct{ SeriesQuery, MetricsQuery string }
	Spec          struct {
		Triggers []struct{ Metadata struct{ Query string } }
		Metrics  []struct {
			External struct{ Metric autoscaling.MetricIdentifier }
		}
	}
}

// queriesOfAutoscalers returns the queries that the page has KEDA and prometheus-adapter send.
func queriesOfAutoscalers(t *testing.T) map[string]string {
	t.Helper()
	page, err := pages.Read("placement/docs/how-to.md")
	require.NoError(t, err)
	blocks, _ := pages.Parse(page.Content)
	queries := map[string]string{}
	var matchers []string
	for _, block := range blocks {
		var a autoscaler
		if block.Language != "yaml" {
			continue
		}
		require.NoError(t, yaml.Unmarshal([]byte(strings.Join(block.Lines, "\n")), &a))
		for _, trigger := range a.Spec.Triggers {
			queries["KEDA"] = trigger.Metadata.Query
		}
		for _, rule := range a.ExternalRules {
			queries["prometheus-adapter"] = strings.ReplaceAll(rule.MetricsQuery, "<<.Series>>", rule.SeriesQuery)
		}
		for _, metric := range a.Spec.Metrics {
			assert.Equal(t, "placement_pods_wanted", metric.External.Metric.Name)
			for label, value := range metric.External.Metric.Selector.MatchLabels {
				matchers = append(matchers, label+`="`+value+`"`)
			}
		}
	}
	queries["prometheus-adapter"] = strings.ReplaceAll(queries["prometheus-adapter"], "<<.LabelMatchers>>", strings.Join(matchers, ","))
	return queries
}

// TestAutoscalersSeeThePodsOfTheLeader, and nothing while there is none, so that they keep the pods.
func TestAutoscalersSeeThePodsOfTheLeader(t *testing.T) {
	queries := queriesOfAutoscalers(t)
	require.Len(t, queries, 2)
	suite, err := promqltest.NewLazyLoader(`load 1m
  placement_pods_wanted{pod="c0",namespace="placement-system",pool="worker"} 3+0x20 stale _x40
  placement_pods_wanted{pod="c1",namespace="placement-system",pool="worker"} _x31 4+0x30
  placement_pods_wanted{pod="c1",namespace="placement-system",pool="other"} _x31 9+0x30`,
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, suite.Close()) })
	ask := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage())
	for _, at := range []struct {
		minute int
		want   []float64
	}{{10, []float64{3}}, {25, nil}, {40, []float64{4}}} {
		now := time.Unix(0, 0).UTC().Add(time.Duration(at.minute) * time.Minute)
		suite.WithSamplesTill(now, func(err error) { require.NoError(t, err) })
		for by, query := range queries {
			found, err := ask(t.Context(), query, now)
			require.NoError(t, err, by)
			var values []float64
			for _, one := range found {
				values = append(values, one.F)
			}
			assert.Equal(t, at.want, values, "%s in minute %d: %s", by, at.minute, query)
		}
	}
}
