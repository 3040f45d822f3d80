package barrier

import (
	"encoding/json"
	"time"
)

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
