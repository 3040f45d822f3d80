package assignment

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// verifyAfter is the time between the last move and the pass that shows that nothing is left to move.
const verifyAfter = 10 * time.Second

// forever is longer than anything that is waited for.
const forever = 24 * time.Hour

// passes says when all objects of a ring must be read, and for which table nothing is left to move. It is
// safe for concurrent use.
type passes struct {
	wake chan struct{}

	mu   sync.Mutex
	view *view
	// isDue reports whether a pass is needed; retry is the earliest time to start it. isRunning reports
	// whether one is under way, and isFirst whether nobody has looked again since it became due: objects
	// that were written meanwhile, by a former view, may be where they do not belong.
	isDue, isRunning, isFirst bool
	retry                     time.Time
	// epoch counts the beginnings and ends of passes.
	epoch int
	// clean is the generation of the table for which no object of a live shard is left to move.
	clean int64
	// open reports that the last pass has noted objects, and worked that one of them has moved.
	open, worked bool
	// rounds is how many passes in a row have found something, or failed.
	rounds int
	// quiet is since when nothing moves, zero if something does.
	quiet time.Time
}

func newPasses() *passes { return &passes{wake: make(chan struct{}, 1)} }

func (p *passes) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// see notes that a view has replaced a former one, which is nil for the first. hasMore reports that more
// resources are followed than before.
func (p *passes) see(former, v *view, hasMore bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view = v
	switch {
	case former == nil && wasBalanced(v.ring):
		p.clean = v.generation()
	case former != nil && !hasMore && !v.needsPass(former):
		if p.clean == former.generation() {
			p.clean = v.generation()
		}
	default:
		p.isDue, p.isFirst, p.rounds, p.retry, p.clean = true, true, 0, time.Time{}, 0
		p.poke()
	}
}

// wasBalanced reports whether the status says that nothing was left to move, of the ring as it is.
func wasBalanced(ring *v1alpha1.ClusterRing) bool {
	c := meta.FindStatusCondition(ring.Status.Conditions, conditionBalancedType)
	selector := ring.Spec.NamespaceSelector
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
		return false // other namespaces may have had these labels
	}
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == ring.Generation &&
		ring.Status.Table != nil && ring.Status.BalancedGeneration == ring.Status.Table.Generation
}

// next returns how long to wait for the next pass, 0 if it is due.
func (p *passes) next(now time.Time, longest time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.view == nil || p.view.table.Now == nil:
		return forever
	case p.isDue:
		return max(0, p.retry.Sub(now))
	case p.open && p.worked && !p.quiet.IsZero():
		return max(0, p.quiet.Add(backoff(verifyAfter, p.rounds, longest)).Sub(now))
	}
	return forever
}

// backoff returns a time that doubles with each further round.
func backoff(first time.Duration, rounds int, longest time.Duration) time.Duration {
	return min(first<<min(max(rounds-1, 0), 16), longest)
}

// begin begins a pass, and returns the view for it.
func (p *passes) begin() *view {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isDue, p.open, p.worked, p.isRunning, p.quiet = false, false, false, true, time.Time{}
	p.epoch++
	return p.view
}

// end notes what a pass has found: how many objects may have to move.
func (p *passes) end(v *view, noted int, err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isRunning = false
	p.epoch++
	if err != nil {
		p.rounds++
		p.isDue, p.retry = true, now.Add(backoff(retryPeriod, p.rounds, 5*time.Minute))
		return
	}
	if noted > 0 || p.isFirst {
		p.open, p.worked, p.isFirst = true, p.isFirst || p.worked, false
		p.rounds++
		return
	}
	p.rounds = 0
	if !p.isDue { // no other view has come meanwhile that needs a pass
		p.clean = max(v.generation(), p.view.generation())
	}
}

// work notes that an object has moved that a pass had found.
func (p *passes) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.worked = true
}

// now returns the epoch, for learn.
func (p *passes) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// learn notes whether anything moves, as it was found out since an epoch.
func (p *passes) learn(s state, epoch int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case epoch != p.epoch || p.isRunning:
		return
	case !s.isQuiet():
		p.quiet = time.Time{}
		return
	case p.quiet.IsZero():
		p.quiet = now
		p.poke()
	}
	if p.open && !p.worked && !p.isDue { // what was noted was right where it was
		p.open, p.rounds, p.clean = false, 0, p.view.generation()
	}
}

// balanced returns the last generation of the table for which nothing was left to move, and whether that
// is the one of now.
func (p *passes) balanced(s state) (generation int64, isBalanced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view == nil || !s.isQuiet() || p.isDue || p.isRunning || p.open {
		return 0, false
	}
	return p.clean, p.clean == p.view.generation() && p.clean > 0
}
