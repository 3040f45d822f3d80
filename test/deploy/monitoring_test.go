package deploy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/reference"
)

const monitoring = "monitoring"

// metricName matches every metric that deploy/monitoring may use: test/monitoring checks that it
// uses no other.
var metricName = regexp.MustCompile(`\b(nodekeeper|process|rest_client|workqueue)_[a-z_]+\b`)

func TestMonitoringRenders(t *testing.T) {
	t.Parallel()
	kinds := map[string]int{}
	for _, obj := range render(t, monitoring) {
		kinds[obj.GetKind()]++
		assert.Equal(t, systemNamespace, obj.GetNamespace(), obj.GetKind())
	}
	assert.Equal(t, map[string]int{"PodMonitor": 1, "PrometheusRule": 1, "ConfigMap": 1}, kinds)
}

// TestMetricsOfThePrograms checks that the built programs export the metrics of the rules and the
// dashboard, and that the reference lists all of them.
func TestMetricsOfThePrograms(t *testing.T) {
	t.Parallel()
	asked := reference.MetricsIn(t, "deploy/"+monitoring, metricName)
	c := newCluster(t, rest.NoWarnings{})
	queueSomething(t, c, "scraped-transactions")
	watcher, processor := scrape(t, c, "watcher"), scrape(t, c, "processor", "--protect=finalizer")
	webhook := scrape(t, c, "webhook", webhookToScrape(t, c)...)
	reference.Check(t, "docs/reference/metrics.md", "metrics", reference.Exposed(t, "nodekeeper_",
		map[string]string{"watcher": watcher, "processor": processor, "webhook": webhook}))
	has := func(text, name string) bool { return regexp.MustCompile(`(?m)^` + name + `[{ ]`).MatchString(text) }
	for _, name := range asked {
		assert.True(t, has(watcher+processor+webhook, name), "%s exists", name)
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"} {
		assert.True(t, has(watcher, name), "%s of a watcher", name)
		assert.True(t, has(processor, name), "%s of a processor", name)
		assert.True(t, has(webhook, name), "%s of a webhook", name)
	}
}

// queueSomething creates an object that a processor must quarantine, as an unused work queue
// exports no depth.
func queueSomething(t *testing.T, c *cluster, namespace string) {
	t.Helper()
	require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	malformed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "malformed-", Labels: map[string]string{txn.TypeLabel: "updated"}}}
	require.NoError(t, c.Create(t.Context(), malformed))
}

// webhookToScrape creates the objects that a webhook needs to become ready, and returns its flags.
func webhookToScrape(t *testing.T, c *cluster) []string {
	t.Helper()
	const namespace = "scraped-members"
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "webhook-certificate"}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "scraped"}},
	} {
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), obj)))
	}
	return []string{"--service-namespace=" + namespace, "--webhook-configuration=scraped", "--webhook-bind-address=127.0.0.1:" + strconv.Itoa(freePort(t))}
}

// scrape runs a program, waits until it is ready, and returns its metrics.
func scrape(t *testing.T, c *cluster, name string, args ...string) string {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(freePort(t))
	p, err := programs.Start(name, name+"-scraped", c.plane.Kubeconfig, append(args, "--metrics-bind-address="+address,
		"--transaction-namespace=scraped-transactions", "--metadata-namespace=scraped-records", "--membership-namespace=scraped-members")...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Kill()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.WaitReady(ctx))
	var served string
	require.EventuallyWithT(t, func(ct *assert.CollectT) { // the listener of the metrics may start later
		served, err = get(ctx, "http://"+address+"/metrics")
		assert.NoError(ct, err)
		if name == "processor" {
			assert.Contains(ct, served, "workqueue_depth")
		}
	}, patience, 50*time.Millisecond)
	return served
}

func get(ctx context.Context, url string) (content string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestReferenceHasTheAlerts compares the alerts with the rules. test/monitoring checks that each
// has a heading in the reference.
func TestReferenceHasTheAlerts(t *testing.T) {
	t.Parallel()
	reference.Check(t, "docs/reference/alerts.md", "alerts", reference.Alerts(t, "deploy/monitoring/rules.yaml"))
}
