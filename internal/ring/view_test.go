package ring

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/ring/hashring"
)

func TestRankInEmptyViewIsZero(t *testing.T) {
	for _, v := range []*View{{}, newView("me", nil, nil, &View{}), newView("me", []string{"me"}, nil, &View{})} {
		p := v.Place("key")
		assert.Zero(t, p.Rank)
		assert.False(t, p.Unready)
	}
}

func TestOnlyReadyMembersHaveARank(t *testing.T) {
	unready := []string{"dead-1", "dead-2", "dead-3"}
	v := newView("b", []string{"a", "b", "c"}, unready, &View{})
	ready, all := hashring.New("a", "b", "c"), hashring.New(append(unready, "a", "b", "c")...)
	count := 0
	for i := range 1000 {
		key := "key-" + strconv.Itoa(i)
		p := v.Place(key)
		assert.Equal(t, ready.Owner(key), p.Owner)
		assert.Equal(t, ready.Rank(key, "b"), p.Rank)
		assert.Equal(t, all.Rank(key, "b") > p.Rank, p.Unready, "one of those that are not ready comes before it for %s", key)
		if p.Unready {
			count++
		}
	}
	assert.InDelta(t, 750, count, 100, "three of four")
}

func TestStandbyMemberComesLast(t *testing.T) {
	v := newView("standby", []string{"a", "b"}, nil, &View{})
	assert.Equal(t, 2, v.Place("key").Rank)
	assert.Equal(t, []string{"a", "b"}, v.Ready())
}

func TestRingsAreRebuiltOnlyOnChanges(t *testing.T) {
	before := newView("a", []string{"b", "a"}, []string{"c"}, &View{})
	assert.Zero(t, testing.AllocsPerRun(10, func() { before.Place("key") }))
	assert.Less(t, testing.AllocsPerRun(10, func() { newView("a", []string{"b", "a"}, []string{"c"}, before) }), 20.0)
	after := newView("a", []string{"b", "a"}, nil, before)
	assert.Equal(t, []string{"a", "b"}, after.Members())
	assert.Equal(t, []string{"a", "b", "c"}, before.Members(), "a view does not change")
}
