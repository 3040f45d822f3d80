package monitoring_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
