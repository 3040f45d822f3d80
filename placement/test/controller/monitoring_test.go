package controller_test

import (
	"context"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

// monitoring is the directory of the alerts and the dashboard.
const monitoring = "placement/deploy/monitoring"

// monitored matches every metric that monitoring may use: test/monitoring checks that it uses no
// other.
var monitored = regexp.MustCompile(`\b(nodekeeper_build_info|placement_(vreplicas|pods|pods_wanted|moves_total|pass_seconds_[a-z]+|contract_bytes_max|not_acknowledged_seconds_max)|process_[a-z_]+)\b`)

// TestMetricsOfTheAlertsAreExported: the program has the metrics of the alerts and the dashboard.
func TestMetricsOfTheAlertsAreExported(t *testing.T) {
	t.Parallel()
	asked := reference.MetricsIn(t, monitoring, monitored)
	w := emptyWorld(t)
	address, err := ports.Address()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.elect(ctx, "--metrics-bind-address="+address)
	}()
	defer func() { cancel(); <-done }()
	w.join("w-0", long)
	w.queue("orders", 2)
	w.await("orders", "Ready", "Ready")
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		all, err := metrics.Scrape(w.t.Context(), address)
		require.NoError(t, err)
		assert.Empty(t, all.Missing(asked))
	}, patience, period)
}

func TestMonitoringRenders(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range manifests.Render(t, filepath.Join(root, filepath.FromSlash(monitoring))) {
		kinds[o.GetKind()]++
		assert.Equal(t, "placement-system", o.GetNamespace(), o.GetKind())
	}
	assert.Equal(t, map[string]int{"PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1}, kinds)
}

// TestReferenceHasTheAlerts compares the page of the alerts with the rules. test/monitoring checks
// that each has a section.
func TestReferenceHasTheAlerts(t *testing.T) {
	t.Parallel()
	reference.Check(t, "placement/docs/alerts.md", "alerts", reference.Alerts(t, monitoring+"/rules.yaml"))
}
