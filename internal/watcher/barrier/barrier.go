package barrier

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

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

// Peer is another watcher, as described by its Lease.
type Peer struct {
	Name string
	// UID is the UID of the Lease.
	UID types.UID
	// Gone reports whether the Lease was released or taken over.
	Gone bool
	// Since is when the Lease last changed, by the clock of this process.
	Since       time.Time
	Annotations map[string]string
}

// Members are all watchers, including this one.
type Members interface {
	// Peers returns the other watchers.
	Peers() []Peer
	// SyncedAt returns a time up to which the view of the others is complete: a later call of Peers
	// includes everything that they stored before it.
	SyncedAt() time.Time
	// Changes returns a channel that receives after every change.
	Changes() <-chan struct{}
}

// Lease is the Lease of this watcher.
type Lease interface {
	// Annotate sets an annotation of the Lease asynchronously.
	Annotate(key, value string)
	// Annotation returns an annotation that the Lease is known to have. From then on,
	// [Members.Peers] includes every watcher that joined before.
	Annotation(key string) string
	// Renew renews the Lease, which advances [Members.SyncedAt] soon if this watcher is connected.
	// It costs a write.
	Renew()
}

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

// openQuestion is the progress of the others with one list.
type openQuestion struct {
	Progress

	question Question
	peers    []Peer // the watchers that must answer; set once the question is stored
	since    time.Time
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

// takeLists adds a question for each list since the last step.
func (b *Barrier) takeLists() {
	for n := len(b.lists); n <= b.config.Stream.Latest(); n++ {
		q := b.config.Stream.Question(n)
		q.Number += b.epoch
		b.lists = append(b.lists, &openQuestion{question: q})
	}
}

// publishQuestions stores the unanswered questions in the Lease. A later list replaces none of
// them.
func (b *Barrier) publishQuestions() {
	open := []Question{}
	for _, a := range b.lists {
		if !a.Done() {
			open = append(open, a.question)
		}
	}
	text := ""
	if len(open) > 0 {
		text = asJSON(open)
	}
	b.write(AsksKey, text)
}

func (b *Barrier) write(key, value string) {
	if b.config.Lease == nil || b.wrote[key] == value {
		return
	}
	b.wrote[key] = value
	b.config.Lease.Annotate(key, value)
}

// readAnswers reads the answers of the others and reports whether a barrier has passed for more
// nodes.
func (b *Barrier) readAnswers(v view) (passed bool) {
	b.unsynced = false
	for i, a := range b.lists {
		if a.Done() {
			continue
		}
		before := a.Reached(Alike)
		if !a.Reach(b.leastAnswer(a, v)) {
			continue
		}
		if i == 0 && !before {
			close(b.first)
		}
		passed = true
		if a.Done() {
			a.peers = nil // no longer needed; lists are kept while the process runs
		}
	}
	return passed
}

// leastAnswer returns the least answer of all watchers that must answer, and the nodes that an
// answer does not include.
func (b *Barrier) leastAnswer(a *openQuestion, v view) (least Answer, held map[string]bool) {
	if b.config.Members == nil {
		return Passed, nil
	}
	if a.since.IsZero() {
		if !contains(b.config.Lease.Annotation(AsksKey), a.question) {
			return NotYet, nil
		}
		a.since, a.peers = v.now, v.peers
	}
	least, held = Passed, map[string]bool{}
	for _, p := range a.peers {
		answer, except := b.answerOf(p, a, v)
		least = min(least, answer)
		for _, node := range except {
			held[node] = true
		}
	}
	return least, held
}

func contains(text string, q Question) bool {
	var stored []Question
	return json.Unmarshal([]byte(text), &stored) == nil && slices.Contains(stored, q)
}

// answerOf returns the answer of a peer to a question, and the nodes that it does not include:
// Passed if the peer is gone or silent.
func (b *Barrier) answerOf(p Peer, a *openQuestion, v view) (Answer, []string) {
	at := slices.IndexFunc(v.peers, func(other Peer) bool { return other.Name == p.Name && other.UID == p.UID })
	if at < 0 || v.peers[at].Gone || b.isSilent(v.peers[at], a, v) {
		return Passed, nil
	}
	return answerIn(v.peers[at].Annotations, b.config.Name, a.question.Number)
}

// isSilent reports whether a peer has neither answered a question nor renewed its Lease for so long
// that this watcher stops waiting for it. Only time in which this watcher was in sync with the
// others counts; otherwise, a watcher that is disconnected or was suspended would treat every peer
// as silent.
func (b *Barrier) isSilent(p Peer, a *openQuestion, v view) bool {
	silent := a.since.Add(b.config.Silence)
	if _, answers := p.Annotations[AnswersKey]; answers { // otherwise it is of an older release
		if renewal := p.Since.Add(max(b.config.Silence, renewPeriod)); renewal.After(silent) {
			silent = renewal
		}
	}
	if !v.syncedAt.Before(silent) {
		return true
	}
	b.unsynced = b.unsynced || !v.now.Before(silent)
	return false
}

// renewIfUnsynced renews the Lease, once in a checkPeriod, while only that can show whether a peer
// is silent.
func (b *Barrier) renewIfUnsynced(now time.Time) {
	if b.unsynced && b.config.Lease != nil && now.Sub(b.renewed) >= checkPeriod {
		b.renewed = now
		b.config.Lease.Renew()
	}
}

// publishAnswers answers the questions of the others and reports whether one of them has started to
// wait for an event in the outbox.
func (b *Barrier) publishAnswers(v view) (asked bool) {
	whole, part := answers{}, partial{}
	b.awaited = b.awaited[:0]
	before := b.open
	b.open = map[questionID]bool{}
	for _, p := range v.peers {
		var questions []Question
		if p.Gone || json.Unmarshal([]byte(p.Annotations[AsksKey]), &questions) != nil {
			continue
		}
		for _, q := range questions {
			answer, held := b.answer(q)
			if answer == Passed && len(held) == 0 {
				whole.add(p.Name, q.Number, Passed)
				continue
			}
			b.awaited = append(b.awaited, q.List)
			id := questionID{p.Name, q.Number}
			b.open[id] = true
			asked = asked || !before[id] && len(held) > 0
			if len(held) > 0 {
				if answer != NotYet && nameable(held, v.now) {
					part.add(p.Name, q.Number, answer, held)
				}
				answer = NotYet
			}
			whole.add(p.Name, q.Number, answer)
		}
	}
	b.write(AnswersKey, asJSON(whole))
	b.write(HeldKey, part.String())
	return asked
}

// answer returns the answer to another watcher's question, and the nodes that it does not include:
// those with an event that is not stored.
func (b *Barrier) answer(q Question) (Answer, map[string]time.Time) {
	position, digest := b.config.Stream.Position() // before Held: what is handled has been added
	held := b.config.Held(q.List, maxHeld+1)
	if len(b.lists) == 0 {
		return NotYet, held
	}
	return q.Answer(position, digest), held
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
