package barrier

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/internal/revision"
)

const (
	// AsksKey is the annotation of a member's Lease with its questions, as JSON, one for each list
	// whose barrier has not passed.
	AsksKey = "nodekeeper.dev/barrier-asks"
	// AnswersKey is the annotation with its answers to other members, as JSON. Every watcher that
	// answers questions has it.
	AnswersKey = "nodekeeper.dev/barrier-answers"
	// HeldKey is the annotation with further answers that do not include some nodes, as JSON. A
	// former release does not read it, so it waits until the answer includes every node.
	HeldKey = "nodekeeper.dev/barrier-held"

	// renewPeriod bounds the time between two changes of a member's Lease: it begins each renewal
	// five seconds after the last, and waits as long for the answer. A member whose Lease has not
	// changed for longer is silent.
	renewPeriod = 11 * time.Second
	// checkPeriod is the interval at which the barrier checks whether a member has become silent.
	checkPeriod = time.Second
)

// processStart is when this process started.
var processStart = time.Now()

// Config configures a Barrier. Members and Lease are nil if there is no other watcher; all other
// fields are required.
type Config struct {
	// Name is the name of this watcher among its Members.
	Name    string
	Members Members
	Lease   Lease
	// Stream tracks the informer of Nodes of this watcher. It belongs to one Barrier.
	Stream *Stream
	// Silence is how long to wait for another watcher that neither renews its Lease nor answers.
	Silence time.Duration
	// Held returns the nodes with an event that this watcher observed at or before a revision and
	// that is not stored yet, and when it observed the first of each. It returns no more nodes than
	// the limit, and must not call the Barrier.
	Held func(upTo revision.Revision, limit int) map[string]time.Time
}

// Step is the result of one step of a Barrier.
type Step struct {
	// Passed reports whether the barrier of a list has passed for more nodes, at least for
	// conclusions.
	Passed bool
	// Asked reports whether another watcher has started to wait for an event that this one holds.
	Asked bool
}

// Barrier tracks which lists every other watcher has passed, and publishes which lists of others
// this watcher has passed. Its methods are safe for concurrent use.
type Barrier struct {
	config Config
	// epoch distinguishes this process's question numbers from an earlier process's of the same
	// name.
	epoch int
	wake  signal.Signal
	busy  atomic.Bool   // whether an answer is pending, here or elsewhere
	first chan struct{} // closed when the barrier of the first list has passed

	mu      sync.Mutex
	lists   []*openQuestion     // by number
	awaited []revision.Revision // others' lists up to which this watcher has events to store
	open    map[questionID]bool // others' questions that this watcher has not passed
	wrote   map[string]string   // by annotation
	// unsynced reports whether a peer seems silent, but this watcher's view may be incomplete.
	// renewed is when this watcher last renewed its Lease to find out.
	unsynced bool
	renewed  time.Time
}

// questionID identifies a question of another watcher.
type questionID struct {
	name   string
	number int
}

// view is the state of the other watchers at one time.
type view struct {
	peers    []Peer
	syncedAt time.Time // peers includes everything that others stored before
	now      time.Time
}

// New returns a Barrier. The informer of its Stream must not have listed yet.
func New(cfg Config) *Barrier {
	b := &Barrier{
		config: cfg, epoch: int(processStart.UnixMicro()), wake: signal.New(), first: make(chan struct{}), wrote: map[string]string{},
	}
	cfg.Stream.changed, cfg.Stream.moved = b.WakeUp, b.Stored
	return b
}

// First is closed when this watcher may draw conclusions from its first list.
func (b *Barrier) First() <-chan struct{} { return b.first }

// Stored makes Run take another step if an answer is pending, here or elsewhere: an event has been
// stored. It never blocks.
func (b *Barrier) Stored() {
	if b.busy.Load() {
		b.WakeUp()
	}
}

// WakeUp makes Run take another step. It never blocks.
func (b *Barrier) WakeUp() { b.wake.Send() }

// Run publishes questions and answers until ctx is done. It calls after, from its own goroutine,
// after each step. It must be called once.
func (b *Barrier) Run(ctx context.Context, after func(Step)) {
	var changes <-chan struct{}
	if b.config.Members != nil {
		changes = b.config.Members.Changes()
	}
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	for {
		after(b.step(time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-b.wake:
		case <-tick.C:
		}
	}
}

// step reads the answers of the others, and publishes questions and answers.
func (b *Barrier) step(now time.Time) Step {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := view{now: now}
	if b.config.Members != nil {
		v.syncedAt = b.config.Members.SyncedAt() // before Peers: only a later call is complete up to then
		v.peers = b.config.Members.Peers()
	}
	b.takeLists()
	s := Step{Passed: b.readAnswers(v), Asked: b.publishAnswers(v)}
	b.publishQuestions()
	b.renewIfUnsynced(now)
	b.busy.Store(len(b.awaited) > 0 || slices.ContainsFunc(b.lists, func(a *openQuestion) bool { return !a.Done() }))
	return s
}

func (b *Barrier) write(key, value string) {
	if b.config.Lease == nil || b.wrote[key] == value {
		return
	}
	b.wrote[key] = value
	b.config.Lease.Annotate(key, value)
}

// Passed reports whether the barrier of a list has passed for an event of a node: one that was
// observed after the list, or a conclusion from it.
func (b *Barrier) Passed(node string, list int, observed bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return list < len(b.lists) && b.lists[list].Free(node, observed) // otherwise, listed just now
}

// Awaited reports whether another watcher waits until events up to a revision are stored.
func (b *Barrier) Awaited(at revision.Revision) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.awaited, func(upTo revision.Revision) bool { return !at.After(upTo) })
}

// MayConclude reports whether this watcher may act on its latest list, except for held nodes.
func (b *Barrier) MayConclude() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	latest := b.config.Stream.Latest()
	return latest >= 0 && latest < len(b.lists) && b.lists[latest].Reached(Alike)
}

// asJSON marshals a value to JSON. The keys of maps are sorted.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // numbers and strings only
	}
	return string(text)
}
