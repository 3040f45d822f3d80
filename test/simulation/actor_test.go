package simulation

// actor contains what all simulated parties use. It pauses before each API call, and wherever else
// time may pass.
type actor struct {
	name string
	*simulation
	pause func()
}

func (a *actor) log(format string, args ...any) {
	if a.world.tracks {
		a.world.log("%-3s "+format, append([]any{a.name}, args...)...)
	}
}
