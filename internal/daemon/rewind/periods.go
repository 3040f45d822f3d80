package rewind

import "time"

// maxPeriods bounds the number of separate periods: with more interruptions, the oldest periods are
// merged.
const maxPeriods = 64

// periods are the times whose observations are unconfirmed. The zero value has none.
type periods struct {
	settled []period // in order, disjoint
	// open is the period that waits for evidence, or whose end is not known yet.
	open   period
	isOpen bool
	// alive is a time before any restore that the open period could be about.
	alive time.Time
}

// period is a half-open interval of time. A zero from is the start of the process.
type period struct{ from, to time.Time }

// begin opens a period; alive is when a watch last delivered an event.
func (d *periods) begin(alive time.Time) {
	if !d.isOpen { // otherwise it continues, and the earlier time holds
		d.isOpen, d.alive, d.open = true, alive, period{}
	}
}

// resume sets the end of the open period.
func (d *periods) resume(to time.Time) { d.open = period{to: to} }

// settle closes the open period and sets its start. It does nothing if the period's end has changed
// in the meantime.
func (d *periods) settle(from, to time.Time) {
	if !d.isOpen || !d.open.to.Equal(to) {
		return
	}
	d.isOpen = false
	last := period{from, to}
	for n := len(d.settled); n > 0 && !d.settled[n-1].to.Before(last.from); n-- {
		if d.settled[n-1].from.Before(last.from) {
			last.from = d.settled[n-1].from
		}
		d.settled = d.settled[:n-1]
	}
	d.settled = append(d.settled, last)
	if len(d.settled) > maxPeriods {
		d.settled[1].from = d.settled[0].from
		d.settled = d.settled[1:]
	}
}

// covers reports whether observations at that time are unconfirmed, provided that no watch is
// interrupted.
func (d *periods) covers(observedAt time.Time) bool {
	if d.isOpen && observedAt.Before(d.open.to) {
		return true
	}
	for _, p := range d.settled {
		if !observedAt.Before(p.from) && observedAt.Before(p.to) {
			return true
		}
	}
	return false
}
