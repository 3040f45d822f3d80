package assignment

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/sharding/api/v1alpha1"
)

// verifyAfter is the delay between the last move and the resync that verifies that nothing is left
// to move.
const verifyAfter = 10 * time.Second

const (
	// forever is longer than any wait.
	forever = 24 * time.Hour
	// restPerResync is how many times as long as a resync of a ring at rest the pause after it lasts.
	restPerResync = 20
	// maxJitter bounds how much the interval between these resyncs varies, as a part of it, so that
	// not all rings of a new leader are read at the same time.
	maxJitter = 0.2
)

// resyncs schedules the resyncs of a ring and tracks the table for which nothing is left to move.
// It is safe for concurrent use.
type resyncs struct {
	wake signal.Signal

	mu   sync.Mutex
	view *view
	// due is set if a resync is needed; retry is the earliest time to start it. running is set
	// while one is in progress. first is set until one has completed since it became due: objects
	// that were written meanwhile, by a former view, may be misplaced.
	due, running, first bool
	retry               time.Time
	// epoch counts the starts and ends of resyncs.
	epoch int
	// clean is the generation of the table for which no object of a live shard is left to move.
	clean int64
	// open is set if the last resync has found objects, moved if one of them has moved since.
	open, moved bool
	// rounds is the number of consecutive resyncs that have found something or failed.
	rounds int
	// quiet is the time since which nothing moves, or zero if something does.
	quiet time.Time
	// began and ended are the times of the last resync, and jitter varies the interval to the next
	// one of a ring at rest.
	began, ended time.Time
	jitter       float64
}

func newResyncs() *resyncs {
	return &resyncs{wake: signal.New(), jitter: newJitter()}
}

// newJitter returns a random number between 0 and maxJitter.
func newJitter() float64 { return rand.Float64() * maxJitter } //nolint:gosec // it need not be secret

// setView replaces a former view, which is nil for the first one. The argument added is set if more
// resources are followed than before.
func (p *resyncs) setView(former, v *view, added bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view = v
	switch {
	case former == nil && wasBalanced(v.ring):
		p.clean = v.generation()
	case former != nil && !added && !v.needsResync(former):
		if p.clean == former.generation() {
			p.clean = v.generation()
		}
	default:
		p.due, p.first, p.rounds, p.retry, p.clean = true, true, 0, time.Time{}, 0
		p.wake.Send()
	}
}

// wasBalanced reports whether the status shows that nothing was left to move for the current spec
// and table.
func wasBalanced(ring *v1alpha1.ClusterRing) bool {
	c := meta.FindStatusCondition(ring.Status.Conditions, conditionBalancedType)
	selector := ring.Spec.NamespaceSelector
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		return false // the namespaces that match may have changed
	}
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == ring.Generation &&
		ring.Status.Table != nil && ring.Status.BalancedGeneration == ring.Status.Table.Generation
}

// next returns the delay before the next resync, or 0 if it is due. The ring is read from time to
// time even if nothing has changed: no watch shows that another client has assigned an object to
// another live shard, or has changed the label or the controller that determines where it belongs.
func (p *resyncs) next(now time.Time, longest time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.IsZero() {
		p.began, p.ended = now, now // the last resync of a former leader cannot be much older
	}
	switch {
	case p.view == nil || p.view.table.Now == nil:
		return forever
	case p.due:
		return max(0, p.retry.Sub(now))
	case p.open && p.moved && !p.quiet.IsZero():
		return max(0, p.quiet.Add(backoff(verifyAfter, p.rounds, longest)).Sub(now))
	}
	interval := max(longest, restPerResync*p.ended.Sub(p.began))
	interval += time.Duration(p.jitter * float64(interval))
	return max(0, p.ended.Add(interval).Sub(now))
}

// backoff returns a delay that doubles with each further round.
func backoff(first time.Duration, rounds int, longest time.Duration) time.Duration {
	return min(first<<min(max(rounds-1, 0), 16), longest)
}

// begin starts a resync and returns the view to use. A ring at rest stays balanced until the resync
// finds something.
func (p *resyncs) begin(now time.Time) *view {
	p.mu.Lock()
	defer p.mu.Unlock()
	if atRest := !p.due && !p.open; !atRest {
		p.running, p.quiet = true, time.Time{}
	}
	p.due, p.open, p.moved, p.began = false, false, false, now
	p.epoch++
	return p.view
}

// end records the result of a resync: the number of objects that may have to move.
func (p *resyncs) end(v *view, found int, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.ended, p.jitter = false, now, newJitter()
	p.epoch++
	if err != nil {
		p.rounds++
		p.due, p.retry = true, now.Add(backoff(retryPeriod, p.rounds, 5*time.Minute))
		return
	}
	if found > 0 || p.first {
		p.open, p.moved, p.first, p.quiet = true, p.first || p.moved, false, time.Time{}
		p.rounds++
		return
	}
	p.rounds = 0
	if !p.due { // no view that needs a resync has replaced this one meanwhile
		p.clean = max(v.generation(), p.view.generation())
	}
}

// markMoved records that an object found by a resync has moved.
func (p *resyncs) markMoved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = true
}

// currentEpoch returns the current epoch, for observe.
func (p *resyncs) currentEpoch() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// observe records whether anything moves. The state must have been determined since the given
// epoch.
func (p *resyncs) observe(s state, epoch int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case epoch != p.epoch || p.running:
		return
	case !s.isQuiet():
		p.quiet = time.Time{}
		return
	case p.quiet.IsZero():
		p.quiet = now
		p.wake.Send()
	}
	if p.open && !p.moved && !p.due { // all objects found were in place after all
		p.open, p.rounds, p.clean = false, 0, p.view.generation()
	}
}

// balanced returns the last generation of the table for which nothing was left to move, and whether
// it is the current one.
func (p *resyncs) balanced(s state) (generation int64, isBalanced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view == nil || !s.isQuiet() || p.due || p.running || p.open {
		return 0, false
	}
	return p.clean, p.clean == p.view.generation() && p.clean > 0
}
