package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/processor/schedule"
	"nodekeeper.dev/internal/ring"
)

// While the clocks differ, the Node seems to be created in the future. It must not be read
// continuously.
func TestRecheckWhereTheServersClockIsAhead(t *testing.T) {
	reads := 0
	for skewed, passed := 10*time.Minute, time.Duration(0); passed < skewed; reads++ {
		passed += schedule.Recheck(passed-skewed, ring.Place{})
	}
	assert.LessOrEqual(t, reads, 60, "of one node by one process in ten minutes")
}
