package amount_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/plugin/amount"
)

func TestOneIsSingular(t *testing.T) {
	for n, want := range map[int]string{0: "0 saved labels", 1: "1 saved label", 2: "2 saved labels", 5000: "5000 saved labels"} {
		assert.Equal(t, want, amount.Of(n, "saved label"))
	}
}
