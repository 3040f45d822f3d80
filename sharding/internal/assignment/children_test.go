package assignment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A second attempt that finds no more children at the former shard must not lower the versions that
// the new shard must have seen.
func TestVersionsOfChildrenAreKept(t *testing.T) {
	t.Parallel()
	first := map[string]string{"configmaps": "99", "services": "100"}
	now := time.Unix(1000, 0)
	c := childrenMove{}.begun("web-1").done("web-1", first, now)
	c = c.begun("web-1").done("web-1", map[string]string{"configmaps": "101"}, now).done("web-1", map[string]string{}, now)
	assert.Equal(t, map[string]string{"configmaps": "101", "services": "100"}, c.versions)
	assert.Equal(t, map[string]string{"configmaps": "99", "services": "100"}, first, "values are not shared")
	c = c.begun("web-2")
	assert.Equal(t, childrenMove{to: "web-2"}, c, "they move on")
	assert.Equal(t, c, c.done("web-1", first, now), "a late result")
	assert.Equal(t, childrenMove{to: "web-1"}, c.begun("web-1"), "some may be at web-2")
}

// A write whose answer has not come may still arrive, and assign a child to a shard that its main
// object does not move to any more.
func TestLateWritesAreAwaited(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for _, to := range []string{"web-1", "web-2"} { // an object can come back before the write arrives
		c := childrenMove{}.begun("web-1").failed(now).begun(to)
		assert.False(t, c.done(to, nil, now).isDone, to)
		assert.True(t, c.done(to, nil, now.Add(arriveWithin)).isDone, to)
		assert.False(t, c.failed(now.Add(time.Second)).done(to, nil, now.Add(arriveWithin)).isDone, to)
	}
}
