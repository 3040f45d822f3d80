package simulation

import "strconv"

// maxQuietRounds is how often everybody gets a turn after the choices are spent, which is far more
// than it takes.
const maxQuietRounds = 5000

const (
	maxWatchers = 4
	network     = 1 + maxWatchers + 2
	remover     = network + 1
)

// simulation is everybody there is. It is used for one run after the other.
type simulation struct {
	mutant   mutant
	settings settings
	choices  choices
	world    *world

	watchers   [maxWatchers]*watcherActor
	processors [2]*processorActor
	remover    *removerActor
	everybody  []party // the user is the first, the watchers follow, then the processors, the network and the remover
	names      []string
	down       []func() // lets each forget what a crash makes it forget
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

// run plays the choices, then lets everybody finish, and returns the promise that was broken.
func (s *simulation) run(bytes []byte, tracks bool) (broken error) {
	s.reset(bytes, tracks)
	s.changePace()
	for !s.choices.isSpent() && s.world.broken == nil {
		s.step()
	}
	s.finish()
	return s.world.broken
}

// finish lets everybody finish, and looks at what there is then.
func (s *simulation) finish() {
	s.settle()
	s.checkEnds()
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
	s.world.tell("--- %v, updates are recorded: %v", s.settings.variant, s.settings.recordUpdates)
	for _, a := range s.watchers {
		a.reset()
	}
	if s.settings.variant == steady { // the first watcher lists the nodes before there are any
		for !s.watchers[0].isComplete() {
			s.everybody[1].next()
		}
	}
}

func (s *simulation) changePace() {
	s.turns = s.settings.pace(&s.choices, s.turns[:0])
}

// step gives one actor a turn, or lets it crash.
func (s *simulation) step() {
	if s.choices.happens(s.settings.newPace) {
		s.changePace()
	}
	who := s.turns[s.choices.next(len(s.turns))]
	if s.canCrash(who) && s.choices.happens(s.settings.crash) {
		s.world.tell("%-3s crashes", s.names[who])
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

// mayMiss says whether a watcher may miss something, or end. Where nothing may be lost there is
// always one that has seen everything since it listed the Nodes, and waited for the others then:
// the first one, or the watchers take turns.
func (s *simulation) mayMiss(a *watcherActor) bool {
	if s.settings.variant != steady {
		return true
	}
	if !s.settings.relay {
		return a != s.watchers[0]
	}
	for _, other := range s.watchers {
		if other != a && other.isComplete() {
			return true
		}
	}
	return false
}

// isSettled says whether no processor has to store, or to see, a Node that was edited when it was
// let go. What is lost if all of them end in that moment is lost.
func (s *simulation) isSettled() bool {
	for _, a := range s.processors {
		if a.position < s.world.lateEdit || len(a.late) > 0 {
			return false
		}
	}
	return true
}

// leaveBehind lets the request of a watcher that crashes have its effect later.
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

// settle gives everybody but the user turns until there is nothing to do.
func (s *simulation) settle() {
	s.world.tell("--- from here on nothing goes wrong")
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
	return s.settings.variant != protected || s.world.node == nil || isProtected(s.world.node) && s.world.node.DeletionTimestamp == nil
}

// checkEnds: what a watcher has seen, it records, also an end that it only concludes from what is
// there after a gap.
func (s *simulation) checkEnds() {
	for _, a := range s.watchers {
		for _, incarnation := range a.ended {
			if !s.world.ghost.by[incarnation].isEnded {
				s.world.breaks(errBrokeP1, "%s saw that u%d is gone, and that is not recorded", a.name, incarnation)
			}
		}
	}
}

// restartWatchers shows whether they record something without a reason.
func (s *simulation) restartWatchers() {
	before := s.world.puts
	s.world.tell("--- the watchers restart")
	for who := 1; who <= maxWatchers; who++ {
		s.crash(who)
	}
	s.settle()
	// Without a record, which is only made at the end of an incarnation then, a restart cannot know
	// what is recorded.
	if s.world.broken == nil && s.world.puts > before && (s.settings.recordUpdates || s.world.record.hasLabels()) {
		s.world.breaks(errNoisy, "%d transactions", s.world.puts-before)
	}
}
