package simulation

// maxQuietRounds is how often everybody gets a turn after the choices are spent, which is far more than it takes.
const maxQuietRounds = 5000

// simulation is everybody there is. It is used for one run after the other.
type simulation struct {
	mutant   mutant
	settings settings
	choices  choices
	world    *world

	watchers   [2]*watcherActor
	processors [2]*processorActor
	everybody  []*coroutine // the user is the first, the watchers follow
	names      []string
	down       []func() // lets each forget what a crash makes it forget
	turns      []int
}

func newSimulation(m mutant) *simulation {
	s := &simulation{mutant: m, world: &world{}}
	u := &userActor{s.actor("U")}
	s.add(&u.actor, u.run, func() {})
	for i, name := range []string{"W1", "W2"} {
		a := &watcherActor{actor: s.actor(name)}
		s.watchers[i] = a
		s.add(&a.actor, a.run, a.down)
	}
	s.watchers[0].other, s.watchers[1].other = s.watchers[1], s.watchers[0]
	for i, name := range []string{"P1", "P2"} {
		a := &processorActor{actor: s.actor(name)}
		s.processors[i] = a
		s.add(&a.actor, a.run, a.down)
	}
	return s
}

func (s *simulation) actor(name string) actor { return actor{name: name, simulation: s} }

func (s *simulation) add(a *actor, life, down func()) {
	s.names = append(s.names, a.name)
	s.down = append(s.down, down)
	s.everybody = append(s.everybody, newCoroutine(func(pause func()) {
		a.pause = pause
		life()
	}))
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
	s.settle()
	s.checkEnds()
	s.world.ghost.check(s.world)
	if s.world.broken == nil {
		s.restartWatchers()
	}
	return s.world.broken
}

func (s *simulation) reset(bytes []byte, tracks bool) {
	for who := range s.everybody {
		s.crash(who)
	}
	s.choices = choices{bytes: bytes}
	s.settings.draw(&s.choices, s.mutant.narrow)
	s.world.reset(&s.settings, tracks)
	s.world.tell("--- %v, updates are recorded: %v", s.settings.variant, s.settings.recordUpdates)
	for i, a := range s.watchers {
		a.reset(i == 0 && s.settings.variant == steady)
	}
	if s.watchers[0].isSteady { // it lists the nodes before there are any
		for !s.watchers[0].isStarted {
			s.everybody[1].next()
		}
	}
}

func (s *simulation) changePace() {
	s.turns = s.settings.pace(&s.choices, len(s.everybody), s.turns[:0])
}

// step gives one actor a turn, or lets it crash.
func (s *simulation) step() {
	if s.choices.happens(s.settings.newPace) {
		s.changePace()
	}
	who := s.turns[s.choices.next(len(s.turns))]
	if s.canCrash(who) && s.choices.happens(s.settings.crash) {
		s.world.tell("%-3s crashes", s.names[who])
		s.crash(who)
		return
	}
	s.everybody[who].next()
}

func (s *simulation) canCrash(who int) bool {
	return who != 0 && (who != 1 || !s.watchers[0].isSteady) && (who <= len(s.watchers) || s.isSettled())
}

// isSettled says whether no processor has to store, or to see, a Node that was edited when it was let go. What is lost if all of them
// end in that moment is lost.
func (s *simulation) isSettled() bool {
	for _, a := range s.processors {
		if a.position < s.world.lateEdit || len(a.late) > 0 {
			return false
		}
	}
	return true
}

func (s *simulation) crash(who int) {
	s.everybody[who].crash()
	s.down[who]()
}

// settle gives everybody but the user turns until there is nothing to do.
func (s *simulation) settle() {
	s.world.tell("--- from here on nothing goes wrong")
	for round := 0; s.world.broken == nil && !s.isQuiet(); round++ {
		for _, c := range s.everybody[1:] {
			c.next()
		}
		if round > maxQuietRounds {
			s.world.breaks(errStuck, "%d transactions are left", len(s.world.queue))
		}
	}
}

func (s *simulation) isQuiet() bool {
	for _, a := range s.watchers {
		if !a.isDone() {
			return false
		}
	}
	for _, a := range s.processors {
		if !a.isIdle || len(a.late) > 0 || a.position < len(s.world.events) || len(s.world.queue) > 0 {
			return false
		}
	}
	return s.settings.variant != protected || s.world.node == nil || isProtected(s.world.node) && s.world.node.DeletionTimestamp == nil
}

// checkEnds: what a watcher has seen, it records, also an end that it only concludes from what is there after a gap.
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
	s.crash(1)
	s.crash(2)
	s.settle()
	// Without a record, which is only made at the end of an incarnation then, a restart cannot know what is recorded.
	if s.world.broken == nil && s.world.puts > before && (s.settings.recordUpdates || s.world.record != nil) {
		s.world.breaks(errNoisy, "%d transactions", s.world.puts-before)
	}
}
