package monitoring_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// keeper is the label keeper. test/deploy looks for its metrics at the programs: see its
// monitoring_test.go.
var keeper = product{
	name: "nodekeeper", deploy: "deploy/monitoring", runbook: "docs/reference/alerts.md", picture: "docs/pictures/dashboard.svg",
	metrics: regexp.MustCompile(`^(nodekeeper|process|rest_client|workqueue)_[a-z_]+$`),
	healthy: healthyKeeper, changes: changesOfKeeper,
}

// healthyKeeper is a cluster with two watchers, two processors and two webhooks in which labels are
// saved and restored. Samples are one minute apart, in the notation of promtool: start+step x
// times.
var healthyKeeper = map[string]string{
	`nodekeeper_build_info{program="watcher",pod="w0"}`:                              "1+0x180",
	`nodekeeper_build_info{program="processor",pod="p0"}`:                            "1+0x180",
	`nodekeeper_oldest_pending_transaction_age_seconds{pod="p0"}`:                    "0 1 0 5 0 61 0+0x174",
	`nodekeeper_oldest_unrecorded_event_age_seconds{pod="w0"}`:                       "0 1 0 5 0 61 0+0x174",
	`nodekeeper_unreadable_records{pod="p0"}`:                                        "0+0x180",
	`nodekeeper_malformed_transactions{pod="p0"}`:                                    "0+0x180",
	`nodekeeper_deletions_waiting{pod="p0"}`:                                         "0 2 0 1 0+0x176",
	`nodekeeper_restore_duration_seconds_bucket{pod="p0",le="0.1"}`:                  "0+60x180",
	`nodekeeper_restore_duration_seconds_bucket{pod="p0",le="10"}`:                   "0+60x180",
	`nodekeeper_restore_duration_seconds_bucket{pod="p0",le="30"}`:                   "0+60x180",
	`nodekeeper_restore_duration_seconds_bucket{pod="p0",le="+Inf"}`:                 "0+60x180",
	`nodekeeper_restores_refused_total{pod="p0"}`:                                    "0+0x180",
	`nodekeeper_labels_refused_total{pod="p0"}`:                                      "0+0x180",
	`nodekeeper_write_conflicts_total{pod="p0",object="node"}`:                       "0+10x180",
	`nodekeeper_transactions_applied_total{pod="p0",type="added",action="restored"}`: "0+60x180",
	`nodekeeper_watch_restarts_total{pod="p0",job="processor"}`:                      "0+0x90 1+0x90",
	`nodekeeper_transactions_too_large_total{pod="w0"}`:                              "0+0x180",
	`nodekeeper_records{pod="p0"}`:                                                   "5000+0x60 4900+0x60 4800+0x60",
	`nodekeeper_records{pod="p1"}`:                                                   "5000+0x60 4900+0x60 4800+0x60",
	`nodekeeper_webhook_certificate_expiry_timestamp_seconds{pod="h0"}`:              "0+0x3 7776000+0x176",
	`nodekeeper_webhook_certificate_expiry_timestamp_seconds{pod="h1"}`:              "7776000+0x180",
	`nodekeeper_oldest_gate_age_seconds{pod="w0"}`:                                   "0 1 0 60 0+0x176",
	`nodekeeper_webhook_cache_age_seconds{pod="h0"}`:                                 "0 1 0 60 90 0+0x175",
	`nodekeeper_webhook_requests_total{pod="h0",result="restored"}`:                  "0+60x180",
	`nodekeeper_webhook_requests_total{pod="h0",result="uncertain"}`:                 "0+0x180",
}

// changesOfKeeper are the failures, by the alert that reports each: other samples, or none, of some
// series from the healthy cluster.
var changesOfKeeper = map[string]map[string]string{
	"NodekeeperTransactionStuck":          {`nodekeeper_oldest_pending_transaction_age_seconds{pod="p0"}`: "0+60x180"},
	"NodekeeperEventNotRecorded":          {`nodekeeper_oldest_unrecorded_event_age_seconds{pod="w0"}`: "0+60x180"},
	"NodekeeperRecordUnreadable":          {`nodekeeper_unreadable_records{pod="p0"}`: "1+0x180"},
	"NodekeeperTransactionMalformed":      {`nodekeeper_malformed_transactions{pod="p0"}`: "3+0x180"},
	"NodekeeperDeletionWaits":             {`nodekeeper_deletions_waiting{pod="p0"}`: "1+0x180"},
	"NodekeeperRestoresSlow":              {`nodekeeper_restore_duration_seconds_bucket{pod="p0",le="0.1"}`: "0+50x180", `nodekeeper_restore_duration_seconds_bucket{pod="p0",le="10"}`: "0+58x180"},
	"NodekeeperRestoresRefused":           {`nodekeeper_restores_refused_total{pod="p0"}`: "0+1x180"},
	"NodekeeperLabelRefused":              {`nodekeeper_labels_refused_total{pod="p0"}`: "0+0x170 1+0x9"},
	"NodekeeperConflictsHigh":             {`nodekeeper_write_conflicts_total{pod="p0",object="node"}`: "0+90x180"},
	"NodekeeperWatchUnstable":             {`nodekeeper_watch_restarts_total{pod="p0",job="processor"}`: "0+4x180"},
	"NodekeeperWatcherMissing":            {`nodekeeper_build_info{program="watcher",pod="w0"}`: "_x180"},
	"NodekeeperProcessorMissing":          {`nodekeeper_build_info{program="processor",pod="p0"}`: "1+0x60 stale _x119"},
	"NodekeeperLabelsNotKept":             {`nodekeeper_transactions_too_large_total{pod="w0"}`: "0+0x170 1+0x9"},
	"NodekeeperWebhookCertificateExpires": {`nodekeeper_webhook_certificate_expiry_timestamp_seconds{pod="h1"}`: "260000+0x180"},
	"NodekeeperGateClosed":                {`nodekeeper_oldest_gate_age_seconds{pod="w0"}`: "0+60x180"},
	"NodekeeperWebhookCacheStale":         {`nodekeeper_webhook_cache_age_seconds{pod="h0"}`: "0+60x180"},
	"NodekeeperWebhookUncertain":          {`nodekeeper_webhook_requests_total{pod="h0",result="uncertain"}`: "0+1x180"},
	"NodekeeperRecordsLost":               {`nodekeeper_records{pod="p0"}`: "5000+0x150 4400+0x29", `nodekeeper_records{pod="p1"}`: "5000+0x150 4400+0x29"},
}

// TestWebhookWithoutACertificateAlerts: the metric is 0 then.
func TestWebhookWithoutACertificateAlerts(t *testing.T) {
	series := maps.Clone(healthyKeeper)
	series[`nodekeeper_webhook_certificate_expiry_timestamp_seconds{pod="h0"}`] = "0+0x180"
	all := keeper.firing(t, series)
	assert.Equal(t, []string{"NodekeeperWebhookCertificateExpires"}, all[len(all)-1])
}

// TestClusterWithoutWebhooksRaisesNoAlert: they are optional.
func TestClusterWithoutWebhooksRaisesNoAlert(t *testing.T) {
	series := maps.Clone(healthyKeeper)
	maps.DeleteFunc(series, func(one, _ string) bool { return strings.HasPrefix(one, "nodekeeper_webhook_") })
	for minute, names := range keeper.firing(t, series) {
		assert.Empty(t, names, "in minute %d", minute)
	}
}
