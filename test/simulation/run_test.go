package simulation

import (
	"errors"
	"iter"
	"maps"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/watcher"
)

type preserveRecord = record.Record

// The promises of docs/design.md.
var (
	errBrokeP1 = errors.New("P1: a node gets the labels that it had when it was deleted")
	errBrokeP3 = errors.New("P3: what was edited after a restore is never overwritten by an older event")
	errBrokeP4 = errors.New("P4: a restore is owed until it is done")
	errStuck   = errors.New("the queue does not get empty")
)

// maxQuietRounds is how often everybody gets a turn after the choices are spent, which is far more than it takes.
const maxQuietRounds = 5000

// coroutine runs an actor between two pauses at a time.
type coroutine struct {
	start func() // one life of the actor
	set   func(pause func())
	next  func() (struct{}, bool)
	stop  func()
}

type crashed struct{}

// live begins a new life.
func (c *coroutine) live() {
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crashed); !ok {
					panic(r)
				}
			}
		}()
		c.set(func() {
			if !yield(struct{}{}) {
				panic(crashed{})
			}
		})
		c.start()
	})
}

// simulation is one run.
type simulation struct {
	world    *world
	choices  *choices
	user     *coroutine
	watchers []*watcherActor
	services []*coroutine // in the order of names
	names    []string
	canCrash []bool
}

func newSimulation(bytes []byte, d decide, habits carrying, tracks bool) *simulation {
	s := &simulation{world: newWorld(tracks), choices: &choices{bytes: bytes}}
	// Everybody's labels are recorded at every change, or only in the end.
	recordUpdates := !s.choices.oneOf(4)
	base := func(name string) actor { return actor{name: name, world: s.world, choices: s.choices} }
	user := base("U")
	s.user = &coroutine{start: user.user, set: func(p func()) { user.pause = p }}
	s.user.live()
	for i, name := range []string{"W1", "W2"} {
		a := &watcherActor{actor: base(name), observer: watcher.Observer{RecordUpdates: recordUpdates}, isFlaky: i == 1, hasNoHeadStart: habits.noHeadStart}
		s.watchers = append(s.watchers, a)
		if i == 1 {
			a.steady = s.watchers[0]
		}
		s.add(name, i == 1, a.run, func(p func()) { a.pause = p })
	}
	for _, name := range []string{"P1", "P2"} {
		a := &processorActor{actor: base(name), decide: d, habits: habits, policy: policy}
		s.add(name, true, a.run, func(p func()) { a.pause = p })
	}
	return s
}

func (s *simulation) add(name string, canCrash bool, start func(), set func(func())) {
	c := &coroutine{start: start, set: set}
	c.live()
	s.services = append(s.services, c)
	s.names = append(s.names, name)
	s.canCrash = append(s.canCrash, canCrash)
}

// run plays the choices, then lets everybody finish, and returns the promise that was broken.
func run(bytes []byte, d decide, habits carrying, tracks bool) (trace []string, broken error) {
	s := newSimulation(bytes, d, habits, tracks)
	defer s.end()
	s.services[0].next() // W1 lists the nodes before there are any: it sees everything
	s.services[0].next()
	s.services[0].next()
	turns := s.turns()
	for !s.choices.isSpent() && s.world.broken == nil {
		s.step(turns)
	}
	s.settle()
	s.check()
	return s.world.trace, s.world.broken
}

// turns draws how fast everybody is: the more often an actor is in the list, the faster.
func (s *simulation) turns() []int {
	var turns []int
	for i := range 1 + len(s.services) {
		for range []int{1, 3, 9}[s.choices.next(3)] {
			turns = append(turns, i)
		}
	}
	return turns
}

func (s *simulation) step(turns []int) {
	who := turns[s.choices.next(len(turns))]
	if who == 0 {
		s.user.next()
		return
	}
	c := s.services[who-1]
	if s.canCrash[who-1] && s.choices.oneOf(40) {
		s.world.tell("%-3s crashes", s.names[who-1])
		c.stop()
		c.live()
		return
	}
	c.next()
}

// settle gives everybody turns until there is nothing to do.
func (s *simulation) settle() {
	s.world.tell("--- from here on nothing goes wrong")
	for round := 0; s.world.broken == nil; round++ {
		for _, c := range s.services {
			c.next()
		}
		if len(s.world.queue) == 0 && s.watchers[0].isDone() && s.watchers[1].isDone() && round > 10 {
			return
		}
		if round > maxQuietRounds {
			s.world.breaks(errStuck, "%d transactions", len(s.world.queue))
		}
	}
}

// check compares what is there in the end with the ghost.
func (s *simulation) check() {
	w := s.world
	switch {
	case w.broken != nil:
	case w.node != nil && !w.ghost.owned:
		w.breaks(errBrokeP4, "%s never got its labels", w.node.UID)
	case w.node != nil && w.record != nil && !w.isNoted():
		w.breaks(errBrokeP4, "the record does not say that %s has its labels", w.node.UID)
	case w.ghost.saved == nil && w.node == nil, w.node != nil && !s.watchers[0].observer.RecordUpdates:
	case w.record == nil:
		w.breaks(errBrokeP1, "nothing is saved")
	case w.node != nil:
		own, marker := labels.Split(w.node.Labels)
		if !maps.Equal(own, w.record.record.Labels) {
			w.breaks(errBrokeP1, "saved are %v, the node has %v (marker %q)", w.record.record.Labels, own, marker)
		}
	case !maps.Equal(w.ghost.saved, w.record.record.Labels):
		w.breaks(errBrokeP1, "saved are %v, not %v", w.record.record.Labels, w.ghost.saved)
	}
}

func (s *simulation) end() {
	s.user.stop()
	for _, c := range s.services {
		c.stop()
	}
}
