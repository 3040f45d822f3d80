package assignment

import (
	"testing"

	"nodekeeper.dev/test/reference"
)

func TestReferenceHasTheMetrics(t *testing.T) {
	t.Parallel()
	reference.Check(t, "sharding/docs/reference.md", "metrics of assignment", reference.Metrics(t, newMetrics().all()))
}
