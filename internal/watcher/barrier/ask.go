package barrier

import (
	"encoding/json"
	"slices"
	"time"
)

// openQuestion is the progress of the others with one list.
type openQuestion struct {
	Progress

	question Question
	peers    []Peer // the watchers that must answer; set once the question is stored
	since    time.Time
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
