package monitor_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/monitoring/monitor"
)

// TestScrapedIsFoundAgain scrapes a program until it has been asked four times, so that three answers are stored, and queries what
// is left of it.
func TestScrapedIsFoundAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	work := prometheus.NewCounter(prometheus.CounterOpts{Name: "work_total", Help: "Grows by one for each scrape."})
	registry.MustRegister(work)
	var asked atomic.Int32
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		work.Inc()
		metrics.ServeHTTP(w, r)
		asked.Add(1)
	}))
	t.Cleanup(server.Close)

	dir, from := t.TempDir(), time.Now()
	scraper, err := monitor.Scrape(dir)
	require.NoError(t, err)
	scraper.Follow([]monitor.Target{{Program: "watcher", Namespace: "nodekeeper-system", Pod: "watcher-1", Address: strings.TrimPrefix(server.URL, "http://")}})
	assert.Eventually(t, func() bool { return asked.Load() >= 4 }, time.Minute, 10*time.Millisecond)
	to := time.Now()
	require.NoError(t, scraper.Close())

	db, err := monitor.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	archive := monitor.Archive{From: from, To: to.Add(monitor.Interval), Step: monitor.Interval, Samples: db}
	found, err := archive.Query(t.Context(), `max by (job, pod, namespace) (max_over_time(work_total[1m]))`)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, map[string]string{"job": "watcher", "pod": "watcher-1", "namespace": "nodekeeper-system"}, found[0].Metric.Map())
	assert.GreaterOrEqual(t, found[0].Floats[len(found[0].Floats)-1].F, 3.0)

	_, err = archive.Query(t.Context(), "rate(")
	require.ErrorContains(t, err, "rate(")
}
