package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/placement/contract"
)

// TestOwnerThatDoesNotRenewItsLeaseProvesNothing: with overlapping hand-overs, its acknowledgement
// would end the work of the former owner.
func TestOwnerThatDoesNotRenewItsLeaseProvesNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		holder string
		at     time.Time
		want   bool
	}{"renews": {"u/1", now, true}, "is silent": {"u/1", now.Add(-time.Minute), false}, "has ended": {"", now, false}, "has a successor": {"u/2", now, false}} {
		p := &pass{loop: newLoop(nil, Pool{}, nil), now: now, contractors: map[string]string{"u/1": "w-0"}, views: map[string]*contract.View{}}
		p.members = map[string]*version[*member]{"w-0": {at: tc.at, parsed: &member{holder: tc.holder, duration: 15 * time.Second}}}
		_, ok := p.contracted("u/1")
		assert.Equal(t, tc.want, ok, name)
		_, ok = p.contracted("u/3")
		assert.False(t, ok)
	}
}
