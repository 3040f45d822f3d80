package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/placement/contract"
)

func TestIncarnationNamesItsLeaseDuration(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "u-1/7c1e09b2-60s", contract.NewIncarnation("u-1", "7c1e09b2", time.Minute))
	for incarnation, want := range map[string]time.Duration{
		"u-1/7c1e09b2-60s": time.Minute, "u/a-b-3s": 3 * time.Second, "u/-1s": time.Second, "u/a-2147483647s": 2147483647 * time.Second,
		"": 0, "u": 0, "u-3s": 0, "u/7c1e09b2": 0, "u/3s": 0, "u/a-3": 0, "u/a-0s": 0, "u/a--3s": 3 * time.Second, "u/a-+s": 0, "u/a-2147483648s": 0, "u/a-1.5s": 0,
	} {
		assert.Equal(t, want, contract.LeaseDuration(incarnation), incarnation)
	}
}
