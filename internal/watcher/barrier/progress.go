package barrier

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

const (
	// maxHeld is how many nodes an answer may name: their names take 4 KiB of the Lease at most.
	maxHeld = 16
	// heldFor is how long an event must have waited before an answer names its node. It spares
	// writes of the Lease, because almost all events are stored sooner; the barrier does not depend
	// on it.
	heldFor = time.Second
)

// answers maps the asking member and the number of its question to the answer.
type answers map[string]map[int]Answer

func (a answers) add(asker string, number int, answer Answer) {
	if a[asker] == nil {
		a[asker] = map[int]Answer{}
	}
	a[asker][number] = answer
}

// partial is the content of [HeldKey].
type partial struct {
	// Held are the nodes that are not part of the answers.
	Held    []string `json:"held"`
	Answers answers  `json:"answers"`
}

// add adds an answer to a question, with the nodes that it does not include. The nodes of all
// answers are merged: an answer may leave out more than it must.
func (p *partial) add(asker string, number int, answer Answer, held map[string]time.Time) {
	if p.Answers == nil {
		p.Answers = answers{}
	}
	p.Answers.add(asker, number, answer)
	p.Held = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(p.Held, maps.Keys(held)))))
}

// String returns the stored form, which is empty if there are no answers.
func (p *partial) String() string {
	if p.Answers == nil {
		return ""
	}
	return asJSON(p)
}

// nameable reports whether an answer may name these nodes, each with the time at which its first
// event was observed.
func nameable(held map[string]time.Time, now time.Time) bool {
	if len(held) > maxHeld {
		return false
	}
	for _, since := range held {
		if now.Sub(since) < heldFor {
			return false
		}
	}
	return true
}

// answerIn returns the answer to a question in the annotations of a member's Lease, and the nodes
// that it does not include.
func answerIn(annotations map[string]string, asker string, number int) (Answer, []string) {
	var whole answers
	if json.Unmarshal([]byte(annotations[AnswersKey]), &whole) != nil {
		return NotYet, nil
	}
	var part partial
	if json.Unmarshal([]byte(annotations[HeldKey]), &part) != nil { // a former release has none
		return whole[asker][number], nil
	}
	if answer := part.Answers[asker][number]; answer > whole[asker][number] {
		return answer, part.Held
	}
	return whole[asker][number], nil
}

// Progress is how far all others have got with one list. The zero value means that they have not
// answered.
type Progress struct {
	by [Passed + 1]level
}

// level is the progress with one answer.
type level struct {
	reached bool
	held    map[string]bool // the nodes that the answer does not include
}

// Reach records that the others now give at least this answer, except for the held nodes, and
// reports whether that is progress. What they have answered before remains: what they have observed
// since builds on later lists.
func (p *Progress) Reach(least Answer, held map[string]bool) (progressed bool) {
	for answer := Alike; answer <= least; answer++ {
		progressed = p.by[answer].reach(held) || progressed
	}
	return progressed
}

func (l *level) reach(held map[string]bool) bool {
	if !l.reached {
		l.reached, l.held = true, maps.Clone(held)
		return true
	}
	before := len(l.held)
	maps.DeleteFunc(l.held, func(node string, _ bool) bool { return !held[node] })
	return len(l.held) < before
}

// Reached reports whether the others have given an answer, with or without all nodes.
func (p *Progress) Reached(answer Answer) bool { return p.by[answer].reached }

// Free reports whether an event of a node may be stored: one that was observed after the list, or a
// conclusion from it.
func (p *Progress) Free(node string, observed bool) bool {
	l := p.by[Alike]
	if observed {
		l = p.by[Passed]
	}
	return l.reached && !l.held[node]
}

// Done reports whether nothing waits for the others any more.
func (p *Progress) Done() bool { return p.by[Passed].reached && len(p.by[Passed].held) == 0 }
