package rewind

import "time"

// maxDoubts bounds the periods that are kept apart: interruptions more often than that make one
// doubt of the oldest.
const maxDoubts = 64

// doubts are the periods in which what was observed is unconfirmed. The zero value has none.
type doubts struct {
	settled []period // in order, disjoint
	// open is the period that waits for evidence, or whose end is not known yet.
	open   period
	isOpen bool
	// alive is when there was no restore yet that the open period could be about.
	alive time.Time
}

// period is a time from one point to before another. A zero from is the start of the process.
type period struct{ from, to time.Time }

// begin opens a period, in which something was last delivered at that time.
func (d *doubts) begin(alive time.Time) {
	if !d.isOpen { // else it goes on, and the earlier time holds
		d.isOpen, d.alive, d.open = true, alive, period{}
	}
}

// resume sets the end of the open period.
func (d *doubts) resume(to time.Time) { d.open = period{to: to} }

// settle closes the open period, which begins then at that time. It does nothing if the period has
// got another end meanwhile.
func (d *doubts) settle(from, to time.Time) {
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
	if len(d.settled) > maxDoubts {
		d.settled[1].from = d.settled[0].from
		d.settled = d.settled[1:]
	}
}

// cover reports whether what was observed at that time is unconfirmed, no watch being interrupted.
func (d *doubts) cover(observedAt time.Time) bool {
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
