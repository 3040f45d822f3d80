package simulation

// actor is what each of the simulated parties can use. Before each API call, and wherever else time may pass, it pauses.
type actor struct {
	name string
	*simulation
	pause func()
}

func (a *actor) tell(format string, args ...any) {
	if a.world.tracks {
		a.world.tell("%-3s "+format, append([]any{a.name}, args...)...)
	}
}
