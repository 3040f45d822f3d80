package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// script drives the actors of a simulation through one schedule that random schedules do not find.
// It alone causes faults.
type script struct{ *simulation }

// maxTurns bounds the turns of an actor in one step of a script.
const maxTurns = 50

// play runs a script, lets all actors finish, and returns the trace and the broken promise, if
// any.
func play(m mutant, steps func(*script)) (trace []string, broken error) {
	s := newSimulation(m)
	defer s.end()
	s.reset(nil, true)
	steps(&script{s})
	s.finish()
	return s.world.trace, s.world.broken
}

// until gives an actor turns until it logs a text.
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

// crashes ends the life of an actor, which starts a new one with its next turn.
func (s *script) crashes(name string) {
	who := slices.Index(s.names, name)
	if !s.canCrash(who) {
		panic(fmt.Sprintf("%s must not crash here:\n%s", name, strings.Join(s.world.trace, "\n")))
	}
	s.world.log("%-3s crashes", name)
	s.crash(who)
}

// user performs actions on the node. It creates the node if it does not exist.
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

// admits creates a Node with the finalizer, with an answer of the webhook.
func (s *script) admits(own map[string]string) {
	u, c := userActor{s.actor("U")}, s.world.request(own, []string{finalizer}, theAgents)
	u.ask(c)
	s.world.addNode(c)
}
