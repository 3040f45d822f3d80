package program

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/metrics"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/reference"
)

// monitored matches every metric of the sharder that sharding/deploy/monitoring may use: test/monitoring
// checks that it uses no other, except those of shards, for which sharding/test/library looks.
var monitored = regexp.MustCompile(`\b(nodekeeper_build_info|leader_election_master_status|(sharder|process|rest_client)_[a-z_]+)\b`)

// TestMetricsOfTheSharder covers R40: a sharder that leads, moves objects and answers for its webhooks
// exports the metrics of the alerts and the dashboard.
func TestMetricsOfTheSharder(t *testing.T) {
	t.Parallel()
	asked := reference.MetricsIn(t, "sharding/deploy/monitoring", monitored)
	c := newSite(t)
	c.useWebhook()
	address, err := ports.Address()
	require.NoError(t, err)
	c.candidate("a", "--admission=webhook", "--metrics-bind-address="+address)
	ring := c.ring("")
	ring.Spec.Handover.Settle = &metav1.Duration{}
	c.admitting(ring, "web-0")
	for i := range 20 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.acknowledgeAll(ring)
	c.lease(ring, "web-1", 600, 0)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.inPlace(t, ring, s)
		assert.Len(t, c.shardsOf(t, ring), 2)
	})
	c.change("web-1", `{"spec":{"holderIdentity":""}}`)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		all, err := metrics.Scrape(c.t.Context(), address)
		require.NoError(t, err)
		assert.Empty(t, all.Missing(asked))
	}, patience, 2*period)
}
