package admission

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/revision"
)

func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r repeats
		first, next := revision.MustParse("5"), revision.MustParse("7")
		assert.False(t, r.has("node-1", first))
		assert.False(t, r.has("node-2", first), "another node")
		time.Sleep(repeatTime)
		assert.True(t, r.has("node-1", first))
		assert.False(t, r.has("node-1", next), "its return was noted")
		assert.True(t, r.has("node-1", next))
		time.Sleep(repeatTime + time.Nanosecond)
		assert.False(t, r.has("node-1", next), "long ago")

		for i := range 100 {
			r.has("node-"+strconv.Itoa(i), first)
		}
		time.Sleep(2 * repeatTime)
		r.has("node-1", next)
		assert.Len(t, r.answered, 1, "old answers are forgotten")
	})
}
