package simulation

import (
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/watcher/barrier"
)

// member is the Lease of one life of a watcher. It outlasts that life.
type member struct {
	dead     bool // the life is over
	released bool // taken over, or its holder's end was observed
	silent   bool // taken over, although the watcher lives
	answers  []answer
}

// answer is the content that a watcher has written into its Lease. It is never withdrawn.
type answer struct {
	to     *list
	answer barrier.Answer // includes the node
	part   barrier.Answer // names the node as not included
}

// give adds an answer, which does not include the node if the watcher holds an event of it.
func (a *answer) give(answer barrier.Answer, held bool) {
	if held {
		a.part = max(a.part, answer)
	} else {
		a.answer = max(a.answer, answer)
	}
}

// read returns the answer, and whether it names the node.
func (a *answer) read() (answer barrier.Answer, held bool) {
	if a.part > a.answer {
		return a.part, true
	}
	return a.answer, false
}

func (m *member) answerTo(l *list) *answer {
	for i := range m.answers {
		if m.answers[i].to == l {
			return &m.answers[i]
		}
	}
	m.answers = append(m.answers, answer{to: l})
	return &m.answers[len(m.answers)-1]
}

// list is one list of the Nodes, with the state of the watcher's questions about it.
type list struct {
	question      barrier.Question
	position      int // of the next event
	asked         bool
	peers         []*member
	silent        []*watcherActor // not waited for
	progress      barrier.Progress
	alike, passed bool
}

// join returns the Lease of a new member.
func (w *world) join() *member {
	m := &member{}
	w.members = append(w.members, m)
	return m
}

// list is one request, which may take long. It returns the Node at some moment between request and
// answer.
func (a *watcherActor) list() *nodeview.Node {
	w := a.world
	a.passTimeIdle()
	l := &list{position: len(w.events)}
	if a.mutant.knowsMembersFirst {
		l.asked, l.peers = true, a.early
	}
	l.question.List = rev(w.rv)
	listed := w.node
	if listed != nil {
		l.question.Newest = listed.Revision
		l.question.Digest = l.question.Digest.Add(nodeName, listed.UID)
	}
	reached := w.rv
	a.passTimeIdle()
	l.question.Number = len(a.lists)
	a.lists = append(a.lists, l)
	a.position, a.reached = l.position, reached
	a.last, a.digest = listed, l.question.Digest
	a.cutOff = false
	return listed
}

// passTimeIdle lets the time of a list request pass. The watcher still answers others, using what
// it has observed so far.
func (a *watcherActor) passTimeIdle() {
	for a.choices.happens(a.settings.slow) {
		a.pause()
		if len(a.lists) > 0 {
			a.converse()
		}
	}
}

// peers returns the other members that are not known to be gone.
func (a *watcherActor) peers() (peers []*member) {
	for _, m := range a.world.members {
		if m != a.member && !m.released {
			peers = append(peers, m)
		}
	}
	return peers
}

// silentOthers returns the other watchers that are silent now.
func (a *watcherActor) silentOthers() (silent []*watcherActor) {
	for _, other := range a.watchers {
		if other != a && other.member != nil && other.member.silent {
			silent = append(silent, other)
		}
	}
	return silent
}

// readMembersEarly makes a mutant read the members before it lists.
func (a *watcherActor) readMembersEarly() {
	if a.mutant.knowsMembersFirst {
		a.early = a.peers()
	}
}

// converse is the communication between watchers by their Leases.
func (a *watcherActor) converse() {
	if a.choices.happens(a.settings.deaf) {
		return
	}
	a.answer()
	for _, l := range a.lists {
		if l.passed {
			continue
		}
		if !l.asked {
			l.asked, l.peers, l.silent = true, a.peers(), a.silentOthers()
		}
		least, held := barrier.Passed, map[string]bool{}
		for _, m := range l.peers {
			if m.released {
				continue
			}
			answer, isHeld := m.answerTo(l).read()
			least = min(least, answer)
			if isHeld && !a.mutant.ignoresHeld {
				held[nodeName] = true
			}
		}
		if a.settings.variant == protected && !a.mutant.forgetsProtectors {
			for _, p := range a.processors {
				if p.position < l.position || len(p.late) > 0 {
					least = barrier.NotYet
				}
			}
		}
		l.progress.Reach(least, held)
		l.alike, l.passed = l.progress.Free(nodeName, false), l.progress.Free(nodeName, true)
	}
}

// answer answers the questions of the other members.
func (a *watcherActor) answer() {
	if a.member.silent {
		return
	}
	for _, other := range a.watchers {
		if other == a {
			continue
		}
		for _, l := range other.lists {
			if l.passed || !l.asked {
				continue
			}
			answer := a.member.answerTo(l)
			if answer.answer != barrier.Passed {
				answer.give(l.question.Answer(rev(a.reached), a.digest), a.holds(l.question.List))
			}
		}
	}
}

func (a *watcherActor) holds(upTo revision.Revision) bool {
	return !a.mutant.answersEarly && len(a.outbox.Held(upTo, 1)) > 0
}

// networkActor simulates what takes time to affect others: Leases are taken over, and requests
// arrive at the API server after their sender has ended.
type networkActor struct{ actor }

// next is one turn of the network.
func (a *networkActor) next() {
	a.takeOver()
	a.deliver()
	if a.choices.happens(a.settings.silence) {
		a.silence()
	}
}

// takeOver releases the Leases of members that are gone.
func (a *networkActor) takeOver() {
	for _, m := range a.world.members {
		if m.dead && !m.released && !a.choices.happens(a.settings.deaf) {
			m.released = true
		}
	}
}

// deliver delivers a delayed request.
func (a *networkActor) deliver() {
	w := a.world
	if len(w.late) == 0 || a.choices.happens(a.settings.deaf) {
		return
	}
	t := w.late[0]
	w.late = w.late[1:]
	if w.put(t) == nil {
		a.log("records %s %s@%s %v marker %q", t.Type, t.UID, t.Revision, t.Labels, t.Marker)
	}
}

// silence takes over the Lease of a live watcher. If no change may be lost, another watcher must
// have seen everything too, or there must be no other watcher.
func (a *networkActor) silence() {
	w := a.watchers[a.choices.next(a.settings.watchers)]
	if w.member == nil || len(w.lists) == 0 || w.member.silent || a.settings.watchers > 1 && !a.mayMiss(w) {
		return
	}
	a.log("takes the Lease of %s over", w.name)
	w.member.released, w.member.silent = true, true
	for _, other := range a.watchers {
		for _, l := range other.lists {
			if other != w && !l.passed && w.member.answerTo(l).answer != barrier.Passed {
				l.silent = append(l.silent, w)
			}
		}
	}
}
