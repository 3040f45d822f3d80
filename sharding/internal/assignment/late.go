package assignment

import (
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// arriveWithin is how long a write may still arrive after its answer is overdue.
	arriveWithin = 5 * time.Second
	// answerPeriod is the interval between checks whether a write has its answer.
	answerPeriod = 100 * time.Millisecond
)

// lateWrites are the writes to children that may still arrive, by the UIDs of the main objects. The
// children of such an object do not move yet: the write assigns a child to the shard that its main
// object had, and would take the child away from the next one. Its tests of labels do not prevent that,
// as a move does not write a child that is at the next shard already, or the child can come back. The
// zero value is ready to use.
//
// A leader that has just begun waits for the writes of the former one, see assigner.settled.
type lateWrites struct {
	mu  sync.Mutex
	all map[types.UID]unanswered
}

// unanswered are the writes to the children of one main object without an answer.
type unanswered struct {
	// sending is the number of writes that are being sent.
	sending int
	// until is when those without an answer have arrived.
	until time.Time
}

// begin records that a write to a child may be sent. The caller reads the main object afterwards, and
// calls end. If that object is at a shard then, its children do not move before the end of the write.
func (l *lateWrites) begin(main types.UID) {
	l.change(main, func(w unanswered) unanswered {
		w.sending++
		return w
	})
}

func (l *lateWrites) end(main types.UID) {
	l.change(main, func(w unanswered) unanswered {
		w.sending--
		return w
	})
}

// failed records the error of a write to a child. An API server that refuses a write does not carry it
// out later.
func (l *lateWrites) failed(main types.UID, err error, now time.Time) {
	if errors.Is(err, errConflict) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return
	}
	l.change(main, func(w unanswered) unanswered {
		w.until = now.Add(arriveWithin)
		return w
	})
}

func (l *lateWrites) change(main types.UID, change func(unanswered) unanswered) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[types.UID]unanswered{}
	}
	l.all[main] = change(l.all[main])
	if l.all[main] == (unanswered{}) {
		delete(l.all, main)
	}
}

// settled returns when all writes to the children of a main object have arrived, or the time of the
// next check if one is being sent.
func (l *lateWrites) settled(main types.UID, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.all[main]
	if next := now.Add(answerPeriod); w.sending > 0 && next.After(w.until) {
		return next
	}
	return w.until
}

// mayArrive reports whether a write without an answer may still arrive.
func (l *lateWrites) mayArrive(main types.UID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.all[main].until)
}

// forget discards what has arrived.
func (l *lateWrites) forget(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.all, func(_ types.UID, w unanswered) bool { return w.sending == 0 && !now.Before(w.until) })
}
