package contract

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// TestEntryThatStaysIsTheSame as another one that is built.
func TestEntryThatStaysIsTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	some := func(each float64) (set schedule.Set) {
		for index := range int32(3) {
			if r.Float64() < each {
				set = append(set, index)
			}
		}
		return set
	}
	share := func(each float64) placement.Placement {
		return placement.Placement{PodName: "w", Incarnation: "a/1", Indexes: some(each).String(), Since: r.Int64N(3)}
	}
	stays, changes := 0, 0
	for range 4000 {
		p := &Placed{Reference: Reference{UID: "q"}, Generation: 1 + r.Int64N(2), Of: 3, Payload: json.RawMessage(`{"a":1}`)}
		p.Status.Decision = 2 + r.Int64N(2)
		if r.IntN(4) > 0 {
			p.Status.Placement = append(p.Status.Placement, share(0.7))
		}
		if r.IntN(3) == 0 {
			p.Status.Releasing = append(p.Status.Releasing, share(0.3))
		}
		if r.IntN(8) == 0 {
			p.Payload = json.RawMessage(`{ "a": 1 }`)
		}
		before := &Entry{Reference: p.Reference, Generation: 1, Decision: r.Int64N(3), Changed: 5, Of: 3, Payload: json.RawMessage(`{"a":1}`), Replicas: map[int32]int64{}}
		for _, index := range some(0.7) {
			before.Replicas[index] = 1
		}
		b := &builder{Input: &Input{Incarnation: "a/1", Overlap: r.IntN(2) == 0, Owners: func(string) (*View, bool) { return nil, false }}}
		owned, released, named := names(&p.Status, b.Incarnation)
		if !named {
			continue
		}
		row := b.row(p, before, owned, released)
		if b.stays(p, before, owned, released) {
			stays++
			require.Equal(t, *before, row.entry)
		} else if row.entry.Changed == 0 {
			changes++
		}
	}
	assert.Greater(t, stays, 100)
	assert.Greater(t, changes, 100)
}
