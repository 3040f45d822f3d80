package ring

import (
	"sync"
	"time"
)

// Placed knows the owner of a key, and how many members are to go before this one.
type Placed interface {
	Place(key string) (owner string, rank int)
}

var _ Placed = (*Membership)(nil)

// Turns tells a member how long to leave what is to be done to those that come before it on the ring. The time grows with the member's
// rank. It begins anew whenever somebody else gets something of the same kind done, of what the owner has more to do than this: that
// one is busy and not gone. It is safe for concurrent use; nil leaves nothing to anybody.
type Turns struct {
	ring        Placed
	step, limit time.Duration

	mu       sync.Mutex
	waiting  map[string]waiting // by key
	progress map[place]time.Time
}

// place is where this member stands among those that may do something: what is done by those before it is no sign of life for
// another rank, where others come before it.
type place struct {
	owner string
	rank  int
}

// waiting is what somebody else is to do.
type waiting struct {
	what  string
	since time.Time
	place place
	// isOurs says that this member has begun to do it.
	isOurs bool
}

// NewTurns returns the turns of a member that leaves each of those before it a step of time, and never more than the limit in all. Without
// a ring there are none.
func NewTurns(r Placed, step, limit time.Duration) *Turns {
	if r == nil {
		return nil
	}
	return &Turns{ring: r, step: step, limit: limit, waiting: map[string]waiting{}, progress: map[place]time.Time{}}
}

// Wait returns how much longer to leave something about a key to others, zero if it is this member's turn. Since is when this member
// came to know of it; it is not looked at when it is asked for the same again. Whoever asks about something else of the same
// key says that others have done what it asked about before.
func (t *Turns) Wait(key, what string, since, now time.Time) time.Duration {
	if t == nil {
		return 0
	}
	var p place
	p.owner, p.rank = t.ring.Place(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	w, isWaiting := t.waiting[key]
	if p.rank == 0 {
		delete(t.waiting, key)
		return 0
	}
	if w.isOurs {
		return 0
	}
	if isWaiting && w.what != what {
		t.progress[w.place] = now
	}
	if !isWaiting || w.what != what {
		w = waiting{what: what, since: since}
	}
	w.place = p
	t.waiting[key] = w
	from := w.since
	if last := t.progress[p]; last.After(from) {
		from = last
	}
	due, latest := from.Add(time.Duration(p.rank)*t.step), w.since.Add(t.limit)
	if due.After(latest) {
		due = latest
	}
	return max(0, due.Sub(now))
}

// IsWaiting says whether anything was left to others that is not known to be done.
func (t *Turns) IsWaiting() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.waiting {
		if !w.isOurs {
			return true
		}
	}
	return false
}

// Begin says that this member begins to do what there is about a key: it leaves nothing of it to others until there is no more.
func (t *Turns) Begin(key string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[key] = waiting{isOurs: true}
}

// Done says that what was waited for is done, by somebody else if this member has not begun it.
func (t *Turns) Done(key string, now time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w, isWaiting := t.waiting[key]; isWaiting && !w.isOurs {
		t.progress[w.place] = now
	}
	delete(t.waiting, key)
}

// Forget says that this member has done it, or that there is no more to do.
func (t *Turns) Forget(key string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, key)
}
