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

// healthy is a cluster with two watchers, two processors and two webhooks in which labels are saved and restored. Samples are one minute apart, in
// the notation of promtool: start+step x times.
var healthy = map[string]string{
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

// changes are the failures, by the alert that reports each: other samples, or none, of some series
// from the healthy cluster.
var changes = map[string]map[string]string{
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

func TestHealthyClusterAlertsNobody(t *testing.T) {
	for minute, names := range firing(t, healthy) {
		assert.Empty(t, names, "in minute %d", minute)
	}
}

// TestWebhookWithoutACertificateAlerts: the metric is 0 then.
func TestWebhookWithoutACertificateAlerts(t *testing.T) {
	series := maps.Clone(healthy)
	series[`nodekeeper_webhook_certificate_expiry_timestamp_seconds{pod="h0"}`] = "0+0x180"
	all := firing(t, series)
	assert.Equal(t, []string{"NodekeeperWebhookCertificateExpires"}, all[len(all)-1])
}

// TestClusterWithoutWebhooksAlertsNobody: they are optional.
func TestClusterWithoutWebhooksAlertsNobody(t *testing.T) {
	series := maps.Clone(healthy)
	maps.DeleteFunc(series, func(one, _ string) bool { return strings.HasPrefix(one, "nodekeeper_webhook_") })
	for minute, names := range firing(t, series) {
		assert.Empty(t, names, "in minute %d", minute)
	}
}

func TestEveryAlertTellsOfItsTroubleAndNoOtherDoes(t *testing.T) {
	assert.ElementsMatch(t, slices.Collect(maps.Keys(alerts(t))), slices.Collect(maps.Keys(changes)), "the alerts that are tested")
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			series := maps.Clone(healthy)
			for one, samples := range change {
				require.Contains(t, healthy, one)
				series[one] = samples
			}
			all := firing(t, series)
			assert.Equal(t, []string{name}, all[len(all)-1], "in the last minute")
		})
	}
}

// firing evaluates the rules each minute for three hours and returns the names of the alerts that fire.
func firing(t *testing.T, series map[string]string) [][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	content, err := yaml.Marshal(prometheusRule(t).Spec)
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
