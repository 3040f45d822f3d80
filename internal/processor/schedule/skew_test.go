package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/processor/schedule"
)

// TestLookAgainWhereTheServersClockIsAhead: the Node seems to be born in the future for as long as the clocks differ. It is not read all the time.
func TestLookAgainWhereTheServersClockIsAhead(t *testing.T) {
	reads := 0
	for skewed, passed := 10*time.Minute, time.Duration(0); passed < skewed; reads++ {
		passed += schedule.LookAgain(passed-skewed, ring.Place{})
	}
	assert.LessOrEqual(t, reads, 60, "of one node by one process in ten minutes")
}
