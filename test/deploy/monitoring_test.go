package deploy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

const monitoring = "monitoring"

// metricName matches every metric that deploy/monitoring may ask for: test/monitoring checks that it asks for no other.
var metricName = regexp.MustCompile(`\b(nodekeeper|process|rest_client|workqueue)_[a-z_]+\b`)

func TestMonitoringRenders(t *testing.T) {
	kinds := map[string]int{}
	for _, obj := range render(t, monitoring) {
		kinds[obj.GetKind()]++
		assert.Equal(t, systemNamespace, obj.GetNamespace(), obj.GetKind())
	}
	assert.Equal(t, map[string]int{"PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1}, kinds)
}

// TestEveryMetricThatIsAskedForExists: those of the rules and of the dashboard, at the programs as they are built.
func TestEveryMetricThatIsAskedForExists(t *testing.T) {
	asked := map[string]bool{}
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", monitoring, file))
		require.NoError(t, err)
		for _, name := range metricName.FindAllString(string(content), -1) {
			asked[name] = true
		}
	}
	require.Greater(t, len(asked), 20)
	told := scrape(t, "watcher") + scrape(t, "processor", "--protect=finalizer")
	for name := range asked {
		assert.Regexp(t, `(?m)^`+name+`[{ ]`, told)
	}
}

// scrape runs a program and returns its metrics when it is ready.
func scrape(t *testing.T, name string, args ...string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	p, err := programs.Start(name, name+"-scraped", api.Kubeconfig, append(args, "--metrics-bind-address="+address,
		"--transaction-namespace=scraped-transactions", "--metadata-namespace=scraped-records")...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Kill()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.WaitReady(ctx))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(content)
}
