package shard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDoor(t *testing.T) {
	t.Parallel()
	one, two := &work{}, &work{}
	at := map[doorState]func(*door){
		idle:    func(*door) {},
		working: func(d *door) { d.enter(one) },
		closing: func(d *door) { d.close() },
	}
	for _, tc := range []struct {
		from doorState
		name string
		do   func(*door) bool
		is   bool
		to   doorState
	}{
		{idle, "enter", func(d *door) bool { return d.enter(one) }, true, working},
		{idle, "close", (*door).close, true, closing},
		{working, "another one enters", func(d *door) bool { return d.enter(two) }, true, working},
		{working, "close", (*door).close, false, working},
		{working, "leave", func(d *door) bool { d.leave(one); return true }, true, idle},
		{closing, "enter", func(d *door) bool { return d.enter(one) }, false, closing},
		{closing, "another one closes", (*door).close, false, closing},
		{closing, "open", func(d *door) bool { d.open(); return true }, true, idle},
	} {
		d := &door{}
		at[tc.from](d)
		assert.Equal(t, tc.is, tc.do(d), "%d: %s", tc.from, tc.name)
		assert.Equal(t, tc.to, d.state(), "%d: %s", tc.from, tc.name)
	}
}

// Each state meets each event. The object is "uid" and controllers 1 and 2 reconcile it; versions up
// to "10" may be released.
func TestClaim(t *testing.T) {
	t.Parallel()
	const both = controllers(3)
	heldByBoth, sentByBoth := claim{held, "uid", both, ""}, claim{sent, "uid", both, "10"}
	sentOnly, gone := claim{state: sent, version: "10"}, claim{state: released, version: "10"}
	for name, tc := range map[string]struct {
		do   func(*claim)
		want map[claim]claim
	}{
		"work": {func(c *claim) { c.work("uid", 1) }, map[claim]claim{
			{}: {held, "uid", 1, ""}, heldByBoth: heldByBoth, sentByBoth: heldByBoth, sentOnly: {held, "uid", 1, ""}, gone: {held, "uid", 1, ""},
		}},
		"work on a new object of the name": {func(c *claim) { c.work("new", 1) }, map[claim]claim{
			{}: {held, "new", 1, ""}, heldByBoth: {held, "new", 1, ""}, sentByBoth: {held, "new", 1, ""}, sentOnly: {held, "new", 1, ""}, gone: {held, "new", 1, ""},
		}},
		"send": {func(c *claim) { c.send("12") }, map[claim]claim{
			{}: {state: sent, version: "12"}, heldByBoth: {sent, "uid", both, "12"}, sentByBoth: {sent, "uid", both, "12"}, sentOnly: {state: sent, version: "12"}, gone: {state: sent, version: "12"},
		}},
		"confirm": {(*claim).confirm, map[claim]claim{sentByBoth: gone, sentOnly: gone}},
		"cancel":  {(*claim).cancel, map[claim]claim{sentByBoth: heldByBoth, sentOnly: {}}},
		"one of two controllers forgets, one cache": {func(c *claim) { c.forget(1, true) }, map[claim]claim{
			{}: {}, heldByBoth: {held, "uid", 2, ""}, sentByBoth: {held, "uid", 2, ""}, sentOnly: {}, gone: {},
		}},
		"one of two controllers forgets, two caches": {func(c *claim) { c.forget(1, false) }, map[claim]claim{
			{}: {}, heldByBoth: {held, "uid", 2, ""}, sentByBoth: {sent, "uid", 2, "10"}, sentOnly: sentOnly, gone: gone,
		}},
		"all forget, one cache": {func(c *claim) { c.forget(both, true) }, map[claim]claim{
			{}: {}, heldByBoth: {}, sentByBoth: {}, sentOnly: {}, gone: {},
		}},
		"all forget, two caches": {func(c *claim) { c.forget(both, false) }, map[claim]claim{
			{}: {}, heldByBoth: {}, sentByBoth: sentOnly, sentOnly: sentOnly, gone: gone,
		}},
	} {
		for from, want := range tc.want {
			got := from
			tc.do(&got)
			assert.Equal(t, want, got, "%s, from %+v", name, from)
			assert.Equal(t, got.version != "", got.state == sent || got.state == released, "%s, from %+v", name, from)
			assert.Equal(t, got.version != "", got.covers("10") && !got.covers("13"), "%s, from %+v", name, from)
		}
	}
}
