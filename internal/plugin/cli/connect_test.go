package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestClusterClockIsThatOfTheAPIServer after the first response.
func TestClusterClockIsThatOfTheAPIServer(t *testing.T) {
	t.Parallel()
	inCluster := time.Now().Add(-time.Hour)
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", inCluster.UTC().Format(http.TimeFormat))
	}))
	t.Cleanup(served.Close)
	config := &rest.Config{Host: served.URL}
	clock, now := clusterClock(config), time.Now()
	assert.Equal(t, now, clock(now))
	c, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, served.URL, nil)
	require.NoError(t, err)
	answer, err := c.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.WithinDuration(t, inCluster, clock(time.Now()), time.Minute)
}
