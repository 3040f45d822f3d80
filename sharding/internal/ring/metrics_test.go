package ring

import (
	"testing"

	"nodekeeper.dev/test/reference"
)

func TestReferenceHasTheMetrics(t *testing.T) {
	t.Parallel()
	reference.Check(t, "sharding/docs/reference.md", "metrics of ring", reference.Metrics(t, newMetrics().all()))
}
