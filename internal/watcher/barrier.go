package watcher

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/revision"
)

const (
	// AsksKey is the annotation of a member's Lease with its questions, as JSON: those about lists
	// whose barrier has not passed.
	AsksKey = "nodekeeper.dev/barrier-asks"
	// AnswersKey is the annotation with its answers to others, as JSON. Every watcher that answers
	// questions has it.
	AnswersKey = "nodekeeper.dev/barrier-answers"

	// renewPeriod is the time between two renewals of a Lease, with some time for each of them. A
	// member whose Lease has not changed for longer is silent.
	renewPeriod = 6 * time.Second
	// checkPeriod is the time between two looks at whether somebody has become silent, or this
	// process has been.
	checkPeriod = time.Second
)

// processStart is when this process started.
var processStart = time.Now()

// Peer is another watcher as its Lease shows it.
type Peer struct {
	Name string
	// UID is that of the Lease.
	UID types.UID
	// Gone says that the Lease is released, or was taken over.
	Gone bool
	// Since is when the Lease was last changed, as this process knows it.
	Since       time.Time
	Annotations map[string]string
}

// Members are the watchers, this one included.
type Members interface {
	// Joined reports whether others know this watcher.
	Joined() bool
	// Peers returns the other watchers.
	Peers() []Peer
	// Heard returns a time up to which this watcher has heard the others: a later call of Peers
	// returns everything that they stored before it.
	Heard() time.Time
	// Changes returns a channel that receives after any of this has changed.
	Changes() <-chan struct{}
}

// Lease is that of this watcher.
type Lease interface {
	// Annotate makes the Lease have an annotation, soon.
	Annotate(key, value string)
	// Annotation returns the annotation that the Lease is known to have. [Members.Peers] then has
	// everybody who joined before that.
	Annotation(key string) string
	// Renew advances [Members.Heard] soon if others can be heard. It costs a write.
	Renew()
	// SetServing tells the others whether this watcher takes its share of the nodes.
	SetServing(serving bool)
}

// answers are by the number of the question and the member that asks it.
type answers map[string]map[int]Answer

// barrier knows which lists every other watcher has passed, and tells others which ones this
// watcher has passed. Its methods are safe for concurrent use.
type barrier struct {
	name    string
	members Members // nil: there are no others
	lease   Lease
	stream  *Stream
	holds   func(upTo revision.Revision) bool
	silence time.Duration
	// looked is called after each look at the other members, passed when a barrier has passed, and
	// asked when another one has begun to wait for something that is in the outbox.
	looked, passed, asked func()
	// epoch makes the numbers of this process's questions differ from those of a process that had
	// its name before.
	epoch  int
	poked  chan struct{}
	uptime func() time.Duration
	busy   atomic.Bool   // whether somebody waits for an answer
	first  chan struct{} // closed when the barrier of the first list has passed

	mu    sync.Mutex
	lists []*asking           // by number
	owed  []revision.Revision // the lists of others up to which this watcher has something to store
	open  map[questionID]bool // the questions of others that this watcher has not passed
	wrote map[string]string   // by annotation
	// unheard reports whether a peer seems silent, but this watcher may not have heard it. renewed
	// is when this watcher last renewed its Lease to find out.
	unheard bool
	renewed time.Time
}

// questionID identifies a question of another watcher.
type questionID struct {
	name   string
	number int
}

// view is what this watcher knows of the others at a time.
type view struct {
	peers []Peer
	heard time.Time // everything that others stored before then is in peers
	now   time.Time
}

// asking is how far the others are with one list.
type asking struct {
	question Question
	peers    []Peer // who must answer; known once the question is stored
	since    time.Time
	least    Answer
}

func newBarrier(cfg *Config, holds func(upTo revision.Revision) bool) *barrier {
	b := &barrier{
		name: cfg.Name, members: cfg.Members, lease: cfg.Lease, stream: cfg.Stream, holds: holds, silence: cfg.Silence,
		epoch: int(processStart.UnixMicro()), poked: make(chan struct{}, 1), first: make(chan struct{}), uptime: bootTime, wrote: map[string]string{},
	}
	if cfg.Uptime != nil {
		b.uptime = cfg.Uptime
	}
	cfg.Stream.changed, cfg.Stream.moved = b.poke, b.pokeIfBusy
	return b
}

// pokeIfBusy makes Run look again if somebody waits for an answer.
func (b *barrier) pokeIfBusy() {
	if b.busy.Load() {
		b.poke()
	}
}

// poke makes Run look again. It never blocks.
func (b *barrier) poke() {
	select {
	case b.poked <- struct{}{}:
	default:
	}
}

// Run asks and answers until ctx is done.
func (b *barrier) Run(ctx context.Context) {
	var changes <-chan struct{}
	if b.members != nil {
		changes = b.members.Changes()
	}
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	awake := b.uptime()
	for {
		now := b.uptime()
		if now-awake > b.silence {
			b.stream.Relist() // others may not have waited for this watcher
		}
		awake = now
		b.step(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-b.poked:
		case <-tick.C:
		}
	}
}

// step takes the answers of the others, and writes questions and answers.
func (b *barrier) step(now time.Time) {
	b.mu.Lock()
	v := view{now: now}
	if b.members != nil {
		v.heard = b.members.Heard() // before Peers: only a later call returns everything up to then
		v.peers = b.members.Peers()
	}
	b.takeLists()
	passed := b.look(v)
	asked := b.answer(v.peers)
	b.ask()
	b.listen(now)
	b.busy.Store(len(b.owed) > 0 || slices.ContainsFunc(b.lists, func(a *asking) bool { return a.least != Passed }))
	b.mu.Unlock()
	b.looked()
	if passed {
		b.passed()
	}
	if asked {
		b.asked()
	}
}

// takeLists takes the lists since the last step.
func (b *barrier) takeLists() {
	for n := len(b.lists); n <= b.stream.Latest(); n++ {
		q := b.stream.Question(n)
		q.Number += b.epoch
		b.lists = append(b.lists, &asking{question: q})
	}
}

// ask puts the questions that are not answered yet into the Lease. A later list replaces none of
// them.
func (b *barrier) ask() {
	open := []Question{}
	for _, a := range b.lists {
		if a.least != Passed {
			open = append(open, a.question)
		}
	}
	text := ""
	if len(open) > 0 {
		text = asJSON(open)
	}
	b.write(AsksKey, text)
}

func (b *barrier) write(key, value string) {
	if b.lease == nil || b.wrote[key] == value {
		return
	}
	b.wrote[key] = value
	b.lease.Annotate(key, value)
}

// look takes the answers of the others. It returns true if a barrier has passed that had not.
func (b *barrier) look(v view) (passed bool) {
	b.unheard = false
	for i, a := range b.lists {
		if a.least == Passed {
			continue
		}
		least := b.leastAnswer(a, v)
		if least <= a.least {
			continue
		}
		if i == 0 && a.least == NotYet {
			close(b.first)
		}
		a.least, passed = least, true
		if least == Passed {
			a.peers = nil // not needed any more; lists are kept for as long as the process runs
		}
	}
	return passed
}

// leastAnswer returns the least answer of all who must answer.
func (b *barrier) leastAnswer(a *asking, v view) Answer {
	if b.members == nil {
		return Passed
	}
	if a.since.IsZero() {
		if !contains(b.lease.Annotation(AsksKey), a.question) {
			return NotYet
		}
		a.since, a.peers = v.now, v.peers
	}
	least := Passed
	for _, p := range a.peers {
		least = min(least, b.answerOf(p, a, v))
	}
	return least
}

func contains(text string, q Question) bool {
	var stored []Question
	return json.Unmarshal([]byte(text), &stored) == nil && slices.Contains(stored, q)
}

// answerOf returns the answer of a peer to a question: Passed if the peer is gone or silent.
func (b *barrier) answerOf(p Peer, a *asking, v view) Answer {
	at := slices.IndexFunc(v.peers, func(other Peer) bool { return other.Name == p.Name && other.UID == p.UID })
	if at < 0 || v.peers[at].Gone || b.isSilent(v.peers[at], a, v) {
		return Passed
	}
	text := v.peers[at].Annotations[AnswersKey]
	var all answers
	if json.Unmarshal([]byte(text), &all) != nil {
		return NotYet
	}
	return all[b.name][a.question.Number]
}

// isSilent reports whether a peer has neither answered a question nor renewed its Lease for so long
// that this watcher stops waiting for it. Only time in which this watcher heard the others counts:
// otherwise a watcher that is cut off, or was stopped, would take every peer for silent.
func (b *barrier) isSilent(p Peer, a *asking, v view) bool {
	silent := a.since.Add(b.silence)
	if _, answers := p.Annotations[AnswersKey]; answers { // else it is of an older release
		if renewal := p.Since.Add(max(b.silence, renewPeriod)); renewal.After(silent) {
			silent = renewal
		}
	}
	if !v.heard.Before(silent) {
		return true
	}
	b.unheard = b.unheard || !v.now.Before(silent)
	return false
}

// listen renews the Lease, once in a checkPeriod, while only that can tell whether a peer is
// silent.
func (b *barrier) listen(now time.Time) {
	if b.unheard && b.lease != nil && now.Sub(b.renewed) >= checkPeriod {
		b.renewed = now
		b.lease.Renew()
	}
}

// answer answers the questions of the others. It returns true if one of them has begun to wait for
// something that is in the outbox.
func (b *barrier) answer(peers []Peer) (asked bool) {
	position, digest := b.stream.Position()
	listed := len(b.lists) > 0
	all := answers{}
	b.owed = b.owed[:0]
	before := b.open
	b.open = map[questionID]bool{}
	for _, p := range peers {
		var questions []Question
		if p.Gone || json.Unmarshal([]byte(p.Annotations[AsksKey]), &questions) != nil {
			continue
		}
		for _, q := range questions {
			says := NotYet
			if listed {
				says = q.Answer(position, digest, b.holds)
			}
			if says != Passed {
				b.owed = append(b.owed, q.List)
				id := questionID{p.Name, q.Number}
				b.open[id] = true
				asked = asked || !before[id] && b.holds(q.List)
			}
			if all[p.Name] == nil {
				all[p.Name] = map[int]Answer{}
			}
			all[p.Name][q.Number] = says
		}
	}
	b.write(AnswersKey, asJSON(all))
	return asked
}

// Passed reports whether the barrier of an event has passed.
func (b *barrier) Passed(e Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.List >= len(b.lists) {
		return false // listed just now
	}
	if e.Observed {
		return b.lists[e.List].least == Passed
	}
	return b.lists[e.List].least >= Alike
}

// Owes reports whether another watcher waits until what was observed at a revision is stored.
func (b *barrier) Owes(at revision.Revision) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.owed, func(upTo revision.Revision) bool { return !at.After(upTo) })
}

// Concludes reports whether this watcher may act on its latest list.
func (b *barrier) Concludes() bool {
	latest := b.stream.Latest()
	return latest >= 0 && b.Passed(Event{List: latest})
}

// asJSON returns a value as JSON, with the keys of maps in order.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // numbers and strings only
	}
	return string(text)
}
