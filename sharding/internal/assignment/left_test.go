package assignment

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
)

// leftBy returns a view of a ring that dead shards have left.
func leftBy(left, live []string) *view {
	v := newView(&v1alpha1.ClusterRing{}, live, place.Selection{})
	if len(live) > 0 {
		v = viewOf(nil, live)
	}
	v.left = left
	return v
}

func TestLeftObjectsAreCountedOnce(t *testing.T) {
	t.Parallel()
	var l leavers
	l.setView(leftBy([]string{"b"}, []string{"a", "b", "c"}))
	assert.False(t, l.add("b", "1"), "the table still contains it")
	l.setView(leftBy([]string{"b"}, []string{"a", "c"}))
	assert.True(t, l.add("b", "1"))
	assert.False(t, l.add("b", "1"), "it is counted")
	assert.True(t, l.add("b", "2"))
	assert.False(t, l.add("a", "3"), "it is alive")
	assert.Equal(t, map[string]int{"b": 2}, l.report())
	assert.Empty(t, l.report(), "it is reported")
	l.setView(leftBy([]string{"c"}, []string{"a", "b"}))
	assert.False(t, l.add("b", "4"), "it is back")
	assert.True(t, l.add("c", "5"))
}

func TestLastShardIsNotCounted(t *testing.T) {
	t.Parallel()
	var l leavers
	l.setView(leftBy([]string{"b"}, nil))
	l.setView(leftBy([]string{"b"}, []string{"a"}))
	assert.False(t, l.add("b", "1"), "there was no shard to hand it over to")
}
