package simulation

import (
	"slices"
	"strconv"
)

// maxQuietRounds bounds the rounds after the choices are used up. It is far more than needed.
const maxQuietRounds = 5000

const (
	maxWatchers = 4
	network     = 1 + maxWatchers + 2
	remover     = network + 1
)

// simulation contains all parties. It is reused for consecutive runs.
type simulation struct {
	mutant   mutant
	settings settings
	choices  choices
	world    *world

	watchers   [maxWatchers]*watcherActor
	processors [2]*processorActor
	remover    *removerActor
	everybody  []party // the user, the watchers, the processors, the network and the remover, in this order
	names      []string
	down       []func() // each function clears the memory of a party, as a crash does
	turns      []int
}

func newSimulation(m mutant) *simulation {
	s := &simulation{mutant: m, world: &world{}}
	u := &userActor{s.actor("U")}
	s.addParty(u.name, stateless(u.next), func() {})
	for i := range s.watchers {
		a := &watcherActor{actor: s.actor("W" + strconv.Itoa(i+1))}
		s.watchers[i] = a
		s.add(&a.actor, a.run, a.down)
	}
	for i, name := range []string{"P1", "P2"} {
		a := &processorActor{actor: s.actor(name)}
		s.processors[i] = a
		s.add(&a.actor, a.run, a.down)
	}
	n := &networkActor{s.actor("N")}
	s.addParty(n.name, stateless(n.next), func() {})
	s.remover = &removerActor{actor: s.actor("R")}
	s.add(&s.remover.actor, s.remover.run, s.remover.down)
	return s
}

func (s *simulation) actor(name string) actor { return actor{name: name, simulation: s} }

func (s *simulation) add(a *actor, life, down func()) {
	s.addParty(a.name, newCoroutine(func(pause func()) {
		a.pause = pause
		life()
	}), down)
}

func (s *simulation) addParty(name string, p party, down func()) {
	s.names, s.everybody, s.down = append(s.names, name), append(s.everybody, p), append(s.down, down)
}

func (s *simulation) end() {
	for _, c := range s.everybody {
		c.end()
	}
}

// run plays the choices, then lets all parties finish, and returns the broken promise, if any.
func (s *simulation) run(bytes []byte, tracks bool) (broken error) {
	s.reset(bytes, tracks)
	s.changePace()
	for !s.choices.isSpent() && s.world.broken == nil {
		s.step()
	}
	s.finish()
	return s.world.broken
}

// finish lets all parties finish, and checks the final state.
func (s *simulation) finish() {
	s.settle()
	s.checkEnds()
	s.world.checkMalformed()
	s.world.ghost.check(s.world)
	if s.world.broken == nil && s.settings.restart {
		s.restartWatchers()
	}
}

func (s *simulation) reset(bytes []byte, tracks bool) {
	for who := range s.everybody {
		s.crash(who)
	}
	s.choices = choices{bytes: bytes}
	s.settings.draw(&s.choices, s.mutant.narrow)
	s.world.reset(&s.settings, tracks)
	s.world.leavesNoFloor = s.mutant.leavesNoFloor
	s.world.log("--- %v, updates are recorded: %v", s.settings.variant, s.settings.recordUpdates)
	for _, a := range s.watchers {
		a.reset()
	}
	if s.settings.variant == steady { // the first watcher lists before any node exists
		for !s.watchers[0].isComplete() {
			s.everybody[1].next()
		}
	}
}

func (s *simulation) changePace() {
	s.turns = s.settings.pace(&s.choices, s.turns[:0])
}

// step gives one party a turn, or lets it crash.
func (s *simulation) step() {
	if s.choices.happens(s.settings.newPace) {
		s.changePace()
	}
	if s.choices.happens(s.settings.replaces) {
		s.replaceDatastore()
		return
	}
	who := s.turns[s.choices.next(len(s.turns))]
	if s.canCrash(who) && s.choices.happens(s.settings.crash) {
		s.world.log("%-3s crashes", s.names[who])
		s.leaveBehind(who)
		s.crash(who)
		return
	}
	s.everybody[who].next()
}

func (s *simulation) canCrash(who int) bool {
	switch {
	case who == 0, who == network:
		return false
	case who <= maxWatchers:
		return s.mayMiss(s.watchers[who-1])
	case who == remover:
		return true
	}
	return s.isSettled()
}

// mayMiss reports whether a watcher may miss events or end. If no change may be lost, there must
// always be a watcher that has seen every event since it listed the Nodes and waited for the
// others: either the first one, or the watchers take turns.
func (s *simulation) mayMiss(a *watcherActor) bool {
	if s.settings.variant != steady {
		return true
	}
	if !s.settings.relay {
		return a != s.watchers[0]
	}
	for _, other := range s.watchers {
		if other != a && other.isComplete() && s.isWaitedFor(other) {
			return true
		}
	}
	return false
}

// isWaitedFor reports whether no open list has given up on a watcher for being silent.
func (s *simulation) isWaitedFor(a *watcherActor) bool {
	for _, other := range s.watchers {
		for _, l := range other.lists {
			if !l.passed && slices.Contains(l.silent, a) {
				return false
			}
		}
	}
	return true
}

// isSettled reports whether no processor still has to observe or store the end of a Node that was
// edited during its release. If all processors ended before that, the edit would be lost.
func (s *simulation) isSettled() bool {
	for _, a := range s.processors {
		if a.position < s.world.lateEdit || len(a.late) > 0 {
			return false
		}
	}
	return true
}

// leaveBehind lets the request of a crashed watcher have its effect later.
func (s *simulation) leaveBehind(who int) {
	if who < 1 || who > maxWatchers {
		return
	}
	if t := s.watchers[who-1].inFlight; t != nil {
		s.world.late = append(s.world.late, *t)
	}
}

func (s *simulation) crash(who int) {
	s.everybody[who].crash()
	s.down[who]()
}

// settle gives all parties except the user turns until there is nothing to do.
func (s *simulation) settle() {
	s.world.log("--- no more faults from here on")
	s.world.policy.whole = false // a refusal of everything does not last
	for round := 0; s.world.broken == nil && !s.isQuiet(); round++ {
		for who, c := range s.everybody[1:] {
			if who < s.settings.watchers || who >= maxWatchers {
				c.next()
			}
		}
		if round > maxQuietRounds {
			s.world.breaks(errStuck, "%d transactions are left", len(s.world.queue))
		}
	}
}

func (s *simulation) isQuiet() bool {
	for _, a := range s.watchers[:s.settings.watchers] {
		if !a.isDone() {
			return false
		}
	}
	for _, a := range s.processors {
		if !a.isIdle || len(a.late) > 0 || a.position < len(s.world.events) || len(s.world.queue) > 0 {
			return false
		}
	}
	if s.remover.busy {
		return false
	}
	return s.settings.variant != protected || s.world.node == nil || isProtected(s.world.node) && !s.world.node.IsDeleting()
}

// checkEnds checks that watchers record every end that they have seen, including ends that they
// only infer after a gap.
func (s *simulation) checkEnds() {
	for _, a := range s.watchers {
		for _, incarnation := range a.ended {
			if !s.world.ghost.by[incarnation].isEnded {
				s.world.breaks(errBrokeP1, "%s saw that u%d is gone, and that is not recorded", a.name, incarnation)
			}
		}
	}
}

// restartWatchers checks that watchers record nothing after a restart without a reason.
func (s *simulation) restartWatchers() {
	before := s.world.puts
	s.world.log("--- the watchers restart")
	for who := 1; who <= maxWatchers; who++ {
		s.crash(who)
	}
	s.settle()
	// Without updates the record is created only at the end of an incarnation. Until then, a restarted
	// watcher cannot know what is recorded.
	if s.world.broken == nil && s.world.puts > before && (s.settings.recordUpdates || s.world.record.hasLabels()) {
		s.world.breaks(errNoisy, "%d transactions", s.world.puts-before)
	}
}
