package handover_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/sharding/internal/handover"
)

// rules returns a ring with the live shards a, b and c. The arguments are the silent ones.
func rules(silent ...string) handover.Ring {
	isOneOf := func(names ...string) func(string) bool {
		all := map[string]bool{}
		for _, name := range names {
			all[name] = true
		}
		return func(name string) bool { return all[name] }
	}
	return handover.Ring{Live: isOneOf("a", "b", "c"), Silent: isOneOf(silent...), DrainTimeout: time.Minute}
}

// TestDecide covers each row of the table of R27, and further combinations.
func TestDecide(t *testing.T) {
	t.Parallel()
	type object = handover.Object
	full, force := rules(), rules()
	full.IsFull, force.Force = true, true
	b := handover.Place{Now: "b", Next: "b"}
	for name, tc := range map[string]struct {
		object object
		place  handover.Place
		ring   handover.Ring
		want   handover.Decision
	}{
		"new":                                                {object{}, b, rules(), handover.Decision{Action: handover.Assign, Shard: "b"}},
		"new, its shard is silent":                           {object{}, handover.Place{Now: "b", Next: "c"}, rules("b"), handover.Decision{Action: handover.Assign, Shard: "c"}},
		"new, all shards are silent":                         {object{}, b, rules("a", "b", "c"), handover.Decision{Action: handover.Assign, Shard: "b"}},
		"new, no shard":                                      {object{}, handover.Place{}, rules(), handover.Decision{}},
		"at a dead shard":                                    {object{Shard: "x", ChildrenMoved: true}, b, rules(), handover.Decision{Action: handover.Assign, Shard: "b", Why: handover.Dead}},
		"at a dead shard, drained":                           {object{Shard: "x", Drain: "a", ChildrenMoved: true}, b, rules(), handover.Decision{Action: handover.Assign, Shard: "b", Why: handover.Dead}},
		"at a dead shard, with children":                     {object{Shard: "x"}, b, rules(), handover.Decision{Action: handover.Park, Shard: "b", Why: handover.Dead}},
		"at a dead shard, the next is silent":                {object{Shard: "x", ChildrenMoved: true}, handover.Place{Now: "b", Next: "c"}, rules("b"), handover.Decision{Action: handover.Assign, Shard: "c", Why: handover.Dead}},
		"at a dead shard, no other":                          {object{Shard: "x"}, handover.Place{}, rules(), handover.Decision{}},
		"at its shard":                                       {object{Shard: "b"}, b, rules(), handover.Decision{}},
		"at its shard, which is silent":                      {object{Shard: "b"}, handover.Place{Now: "b", Next: "c"}, rules("b"), handover.Decision{}},
		"at its shard, drained":                              {object{Shard: "b", Drain: "a"}, b, rules(), handover.Decision{Action: handover.Undrain}},
		"at another":                                         {object{Shard: "a"}, b, rules(), handover.Decision{Action: handover.Drain, Shard: "b", Why: handover.Balance}},
		"at another, while too many move":                    {object{Shard: "a"}, b, full, handover.Decision{Action: handover.Wait, Shard: "b", Why: handover.Balance}},
		"at another, placed there while its shard is silent": {object{Shard: "c"}, handover.Place{Now: "b", Next: "c"}, rules("b"), handover.Decision{}},
		"at another, no shard for it":                        {object{Shard: "a", Drain: "b"}, handover.Place{}, rules(), handover.Decision{}},
		"drained to a third":                                 {object{Shard: "a", Drain: "c"}, b, rules(), handover.Decision{Action: handover.Drain, Shard: "b", Why: handover.Balance}},
		"drained to a third, while too many move":            {object{Shard: "a", Drain: "c"}, b, full, handover.Decision{Action: handover.Drain, Shard: "b", Why: handover.Balance}},
		"draining":                                           {object{Shard: "a", Drain: "b", DrainedFor: time.Second}, b, full, handover.Decision{Action: handover.Wait, Shard: "b", Why: handover.Balance, After: 59 * time.Second}},
		"draining for too long":                              {object{Shard: "a", Drain: "b", DrainedFor: time.Minute}, b, rules(), handover.Decision{Action: handover.Wait, Shard: "b", Why: handover.Balance, IsLate: true}},
		"draining for too long, forced":                      {object{Shard: "a", Drain: "b", DrainedFor: time.Minute, ChildrenMoved: true}, b, force, handover.Decision{Action: handover.Assign, Shard: "b", Why: handover.Forced, IsLate: true}},
		"draining for too long, forced, with children":       {object{Shard: "a", Drain: "b", DrainedFor: time.Minute}, b, force, handover.Decision{Action: handover.Park, Shard: "b", Why: handover.Forced, IsLate: true}},
		"parked":                            {object{Drain: "b", ChildrenMoved: true}, b, rules(), handover.Decision{Action: handover.Assign, Shard: "b", Why: handover.Released}},
		"parked, with children":             {object{Drain: "b"}, b, rules(), handover.Decision{Action: handover.MoveChildren, Shard: "b", Why: handover.Released}},
		"parked for a third":                {object{Drain: "c", ChildrenMoved: true}, b, rules(), handover.Decision{Action: handover.Assign, Shard: "c", Why: handover.Released}},
		"parked for a dead shard":           {object{Drain: "x", ChildrenMoved: true}, b, rules(), handover.Decision{Action: handover.Drain, Shard: "b", Why: handover.Released}},
		"parked for a dead shard, no other": {object{Drain: "x"}, handover.Place{}, rules(), handover.Decision{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, handover.Decide(tc.object, tc.place, tc.ring))
		})
	}
}

// For all inputs of a small ring: an object of a live shard is assigned to another shard only by
// force, its children move first, and decisions are stable or lead to a stable state when every
// actor cooperates.
func TestDecisionsEndAndNeverTakeAnObjectFromALiveShard(t *testing.T) {
	t.Parallel()
	names := []string{"", "a", "b", "c", "x"}
	for _, shard := range names {
		for _, drain := range names {
			for _, place := range []handover.Place{{Now: "b", Next: "b"}, {Now: "b", Next: "c"}, {Now: "a", Next: "a"}, {}} {
				for _, silent := range [][]string{nil, {"b"}, {"a", "b", "c"}} {
					play(t, handover.Object{Shard: shard, Drain: drain}, place, rules(silent...))
				}
			}
		}
	}
}

// play carries out decisions and acknowledges every drain until nothing is left to do.
func play(t *testing.T, o handover.Object, p handover.Place, r handover.Ring) {
	t.Helper()
	begin := o
	for range 8 {
		d := handover.Decide(o, p, r)
		switch d.Action {
		case handover.Keep:
			return
		case handover.Assign:
			assert.True(t, o.ChildrenMoved || o.Shard == "" && o.Drain == "", "%+v at %+v: the children come first", o, p)
			assert.False(t, r.Live(o.Shard), "%+v at %+v: its shard lives", o, p)
			assert.True(t, r.Live(d.Shard))
			o = handover.Object{Shard: d.Shard}
		case handover.Drain:
			o.Drain, o.ChildrenMoved = d.Shard, false
		case handover.Park:
			assert.False(t, r.Live(o.Shard), "%+v at %+v: its shard lives", o, p)
			o = handover.Object{Drain: d.Shard}
		case handover.Undrain:
			o.Drain = ""
		case handover.MoveChildren:
			assert.Empty(t, o.Shard, "%+v at %+v: its shard could return", o, p)
			o.ChildrenMoved = true
		case handover.Wait: // the shard acknowledges
			assert.True(t, r.Live(o.Shard))
			assert.Equal(t, o.Drain, d.Shard)
			o.Shard = ""
		}
	}
	assert.Fail(t, "it never ends", "%+v at %+v", begin, p)
}
