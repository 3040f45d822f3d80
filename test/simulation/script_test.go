package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// script drives the actors of a simulation through one schedule that random choice does not find. Nothing goes wrong but
// what the script does itself.
type script struct{ *simulation }

// maxTurns is how many turns of one actor a step of a script takes at most.
const maxTurns = 50

// play runs a script, lets everybody finish, and returns what happened and the promise that was broken.
func play(m mutant, steps func(*script)) (trace []string, broken error) {
	s := newSimulation(m)
	defer s.end()
	s.reset(nil, true)
	steps(&script{s})
	s.finish()
	return s.world.trace, s.world.broken
}

// until gives an actor turns until it tells a text.
func (s *script) until(name, text string) {
	for range maxTurns {
		seen := len(s.world.trace)
		s.turns(name, 1)
		if slices.ContainsFunc(s.world.trace[seen:], func(line string) bool { return strings.Contains(line, text) }) {
			return
		}
	}
	panic(fmt.Sprintf("%s does not tell %q:\n%s", name, text, strings.Join(s.world.trace, "\n")))
}

// turns gives an actor turns.
func (s *script) turns(name string, count int) {
	for range count {
		s.everybody[slices.Index(s.names, name)].next()
	}
}

// crashes ends the life of an actor, which begins a new one with its next turn.
func (s *script) crashes(name string) {
	who := slices.Index(s.names, name)
	if !s.canCrash(who) {
		panic(fmt.Sprintf("%s must not crash here:\n%s", name, strings.Join(s.world.trace, "\n")))
	}
	s.world.tell("%-3s crashes", name)
	s.crash(who)
}

// user does something to the node, and creates it if there is none.
func (s *script) user(actions ...userAction) {
	u := userActor{s.actor("U")}
	for _, action := range actions {
		if s.world.node == nil {
			u.create()
			continue
		}
		u.act(action)
	}
}

// admits creates a Node that has the finalizer, and the webhook answers.
func (s *script) admits(own map[string]string) {
	u, c := userActor{s.actor("U")}, s.world.request(own, []string{finalizer})
	u.ask(c)
	s.world.addNode(c)
}
