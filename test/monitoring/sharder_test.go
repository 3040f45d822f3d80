package monitoring_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// sharder is the sharder. TestMetricsOfTheSharder in sharding/test/program looks for its metrics at
// the program.
var sharder = product{
	name: "sharder", deploy: "sharding/deploy/monitoring", runbook: "sharding/docs/alerts.md", picture: "sharding/docs/pictures/dashboard.svg",
	metrics: regexp.MustCompile(`^(nodekeeper_build_info|leader_election_master_status|(sharder|shard|process|rest_client)_[a-z_]+)$`),
	healthy: healthySharder, changes: changesOfSharder,
}

// healthySharder is a cluster with two sharders, the first of which leads, and a ring with three
// shards. One of these dies and is replaced. Another ring asks for no fence. Samples are one minute
// apart. A condition has a series for each reason, and Prometheus has only the last one.
var healthySharder = map[string]string{
	`nodekeeper_build_info{program="sharder",pod="s0"}`:                                                   "1+0x180",
	`nodekeeper_build_info{program="sharder",pod="s1"}`:                                                   "1+0x180",
	`leader_election_master_status{name="sharder",pod="s0"}`:                                              "1+0x180",
	`leader_election_master_status{name="sharder",pod="s1"}`:                                              "0+0x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="Ready",reason="Reconciled"}`:                   "_ 1+0x179",
	`sharder_ring_condition{pod="s0",ring="web",condition="Ready",reason="NoAvailableShard"}`:             "0 stale _x178",
	`sharder_ring_condition{pod="s0",ring="web",condition="Ready",reason="ResourceNotFound"}`:             "_x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="AdmissionInstalled",reason="PolicyInstalled"}`: "_ 1+0x179",
	`sharder_ring_condition{pod="s0",ring="web",condition="AdmissionInstalled",reason="Installing"}`:      "0 stale _x178",
	`sharder_ring_condition{pod="s0",ring="web",condition="FenceInstalled",reason="Installed"}`:           "_ 1+0x179",
	`sharder_ring_condition{pod="s0",ring="web",condition="FenceInstalled",reason="Installing"}`:          "0 stale _x178",
	`sharder_ring_condition{pod="s0",ring="web",condition="FenceInstalled",reason="InstallFailed"}`:       "_x180",
	`sharder_ring_condition{pod="s0",ring="plain",condition="FenceInstalled",reason="Disabled"}`:          "1+0x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="PermissionsGranted",reason="Granted"}`:         "1+0x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="PermissionsGranted",reason="Missing"}`:         "_x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="ShardsAccepted",reason="Accepted"}`:            "1+0x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="ShardsAccepted",reason="NameConflict"}`:        "_x180",
	`sharder_ring_condition{pod="s0",ring="web",condition="Balanced",reason="Balanced"}`:                  "0 1+0x179",
	`sharder_unassigned_objects{pod="s0",ring="web"}`:                                                     "0 700 0 0 900 0+0x175",
	`sharder_late_drains{pod="s0",ring="web"}`:                                                            "0 1 0+0x178",
	`sharder_failing_objects{pod="s0",ring="web"}`:                                                        "0 0 3 0+0x177",
	`sharder_left_objects_total{pod="s0",ring="web"}`:                                                     "0+0x180",
	`sharder_webhook_certificate_expiry_timestamp_seconds{pod="s0"}`:                                      "7776000+0x180",
	`sharder_webhook_certificate_expiry_timestamp_seconds{pod="s1"}`:                                      "0+0x3 7776000+0x176",
}

// becomes returns samples of the conditions of the healthy ring: one has another reason from the
// first hour on, with which it is false.
func becomes(condition, from, to string) map[string]string {
	series := func(reason string) string {
		return `sharder_ring_condition{pod="s0",ring="web",condition="` + condition + `",reason="` + reason + `"}`
	}
	return map[string]string{series(from): "1+0x59 stale _x119", series(to): "_x60 0+0x119"}
}

// changesOfSharder are the failures, by the alert that reports each.
var changesOfSharder = map[string]map[string]string{
	"NoShards":                  becomes("Ready", "Reconciled", "NoAvailableShard"),
	"RingNotReady":              becomes("Ready", "Reconciled", "ResourceNotFound"),
	"AdmissionNotInstalled":     becomes("AdmissionInstalled", "PolicyInstalled", "Installing"),
	"FenceNotInstalled":         becomes("FenceInstalled", "Installed", "InstallFailed"),
	"PermissionsMissing":        becomes("PermissionsGranted", "Granted", "Missing"),
	"ShardRejected":             becomes("ShardsAccepted", "Accepted", "NameConflict"),
	"UnassignedObjects":         {`sharder_unassigned_objects{pod="s0",ring="web"}`: "0+0x177 4 4 4"},
	"DrainStuck":                {`sharder_late_drains{pod="s0",ring="web"}`: "0+0x170 1+0x9"},
	"MovesFailing":              {`sharder_failing_objects{pod="s0",ring="web"}`: "0+0x170 1+0x9"},
	"ObjectsLeft":               {`sharder_left_objects_total{pod="s0",ring="web"}`: "0+0x170 37+0x9"},
	"NoSharder":                 {`leader_election_master_status{name="sharder",pod="s0"}`: "1+0x60 0+0x119"},
	"SharderCertificateExpires": {`sharder_webhook_certificate_expiry_timestamp_seconds{pod="s1"}`: "260000+0x180"},
}

// TestFenceOfSomeAPIServersRaisesAnAlert: each dry run reaches one of several API servers, not all of
// which apply the fence.
func TestFenceOfSomeAPIServersRaisesAnAlert(t *testing.T) {
	series := maps.Clone(healthySharder)
	maps.Copy(series, map[string]string{
		`sharder_ring_condition{pod="s0",ring="web",condition="FenceInstalled",reason="Installed"}`:        "1+0x59" + strings.Repeat(" stale _ 1", 40),
		`sharder_ring_condition{pod="s0",ring="web",condition="FenceInstalled",reason="FenceUnsupported"}`: "_x60" + strings.Repeat(" 0 0 stale", 40),
	})
	all := sharder.firing(t, series)
	assert.Empty(t, all[60])
	for _, names := range all[70:] {
		assert.Equal(t, []string{"FenceNotInstalled"}, names)
	}
}

// TestFenceThatFailsOnceRaisesNoAlert: one check of the fence fails.
func TestFenceThatFailsOnceRaisesNoAlert(t *testing.T) {
	series := maps.Clone(healthySharder)
	series[`sharder_ring_condition{pod="s0",ring="web",condition="FenceInstalled",reason="FenceUnsupported"}`] = "_x60 0 stale"
	for minute, names := range sharder.firing(t, series) {
		assert.Empty(t, names, "in minute %d", minute)
	}
}

// TestSharderWithoutScrapesIsMissing: the rest of the series is gone, too.
func TestSharderWithoutScrapesIsMissing(t *testing.T) {
	all := sharder.firing(t, map[string]string{`nodekeeper_build_info{program="sharder",pod="s0"}`: "1+0x60 stale _x119"})
	assert.Equal(t, []string{"NoSharder"}, all[len(all)-1])
}

// TestSharderWithoutElectionOrWebhooksRaisesNoAlert: both are optional.
func TestSharderWithoutElectionOrWebhooksRaisesNoAlert(t *testing.T) {
	series := maps.Clone(healthySharder)
	maps.DeleteFunc(series, func(one, _ string) bool {
		return strings.HasPrefix(one, "leader_election_") || strings.HasPrefix(one, "sharder_webhook_")
	})
	for minute, names := range sharder.firing(t, series) {
		assert.Empty(t, names, "in minute %d", minute)
	}
}

// TestNewLeaderKeepsAnAlert: its series have another pod, and those of the former leader end.
func TestNewLeaderKeepsAnAlert(t *testing.T) {
	series := maps.Clone(healthySharder)
	series[`sharder_late_drains{pod="s0",ring="web"}`] = "0+0x60 1+0x60 stale _x58"
	series[`sharder_late_drains{pod="s1",ring="web"}`] = "_x122 1+0x57"
	all := sharder.firing(t, series)
	assert.Equal(t, []string{"DrainStuck"}, all[len(all)-1])
}
