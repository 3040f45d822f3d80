package webhook_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"nodekeeper.dev/sharding/internal/ring"
	"nodekeeper.dev/sharding/internal/webhook"
	"nodekeeper.dev/test/reference"
)

func TestReferenceHasTheMetrics(t *testing.T) {
	reference.Check(t, "sharding/docs/reference.md", "metrics of webhook", reference.Metrics(t, []prometheus.Collector{webhook.New(nil, ring.Dialect{}, nil).Metrics()}))
}
