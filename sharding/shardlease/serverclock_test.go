package shardlease_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/shardlease"
)

// server is a transport that responds with a status and a clock ahead of the local one.
type server struct {
	status int
	ahead  time.Duration
}

func (s server) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{"Date": {time.Now().Add(s.ahead).UTC().Format(http.TimeFormat)}}
	return &http.Response{StatusCode: s.status, Header: header, Body: http.NoBody}, nil
}

// ask sends a request through a clock.
func ask(t *testing.T, c *shardlease.ServerClock, s server) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://example.com", http.NoBody)
	require.NoError(t, err)
	resp, err := c.Wrap(s).RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// renewedAt returns a Lease that was renewed at the given second of the API server's clock and
// labelled by another client later.
func renewedAt(at time.Time) *coordinationv1.Lease {
	second, later := metav1.NewTime(at.Truncate(time.Second)), metav1.NewTime(at.Add(time.Hour))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "shard", Time: &second, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)},
		{Manager: "sharder", Time: &later, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:state":{}}}}`)},
	}}}
}

// The age does not depend on the local wall clock, and grows by the monotonic clock.
func TestAgeOfALeaseIsThatByTheClockOfTheAPIServer(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := &shardlease.ServerClock{}
			ask(t, c, server{http.StatusOK, ahead})
			l := renewedAt(time.Now().Add(ahead - time.Minute))
			now := time.Now()
			assert.InDelta(t, time.Minute, now.Sub(c.Since(l, now)), float64(2*time.Second))
			time.Sleep(30 * time.Second)
			now = time.Now()
			assert.InDelta(t, 90*time.Second, now.Sub(c.Since(l, now)), float64(2*time.Second))
		})
	}
}

// The age is zero if there was no response, if the Lease has no managedFields, or if it was renewed
// after the API server's time.
func TestLeaseWithoutAnAgeCountsFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &shardlease.ServerClock{}
		now := time.Now()
		assert.Equal(t, now, c.Since(renewedAt(now.Add(-time.Hour)), now))
		ask(t, c, server{http.StatusBadGateway, time.Hour})
		assert.Equal(t, now, c.Since(renewedAt(now.Add(-time.Hour)), now), "a load balancer has a clock of its own")
		ask(t, c, server{http.StatusOK, 0})
		assert.Equal(t, now, c.Since(&coordinationv1.Lease{}, now))
		assert.Equal(t, now, c.Since(renewedAt(now.Add(time.Hour)), now))
		assert.True(t, c.Since(renewedAt(now.Add(-time.Hour)), now).Before(now))
	})
}
