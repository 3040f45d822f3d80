package robustness

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"

	"nodekeeper.dev/test/sabotage"
)

// saboteurCount is the maximum number of concurrent faults.
const saboteurCount = 3

// maxHold exceeds the time after which a Lease is taken over.
const maxHold = 2*leaseDuration + 2*leaseDuration/5

// kinds returns all types of faults that fit the scenario, with the weights for drawing them.
func (w *world) kinds() []sabotage.Kind {
	agents := []sabotage.Kind{
		{Weight: 5, Draw: w.drawKillAgent},
		{Weight: 3, Draw: w.drawReplacePod},
		{Weight: 4, Draw: func(r *rand.Rand) sabotage.Fault { return w.newFreeze(sabotage.Some(r, w.pods)) }},
		{Weight: 2, Draw: w.drawKillGuard},
		{Weight: 2, Draw: w.drawKillWorkers},
		{Weight: 2, Draw: w.drawRoll},
		{Weight: 2, Draw: w.drawDeleteLease},
		{Weight: 2, Draw: w.drawHarmContract},
		{Weight: 3, Draw: w.onTheWay(sabotage.DelayAnswers[*process])},
		{Weight: 3, Draw: w.onTheWay(sabotage.DropAnswers[*process])},
		{Weight: 4, Draw: w.onTheWay(sabotage.RefuseRequests[*process](http.StatusForbidden))},
		{Weight: 3, Draw: w.onTheWay(sabotage.CutWatches[*process])},
		{Weight: 2, Draw: w.onTheWay(sabotage.GoneWatches[*process])},
	}
	if w.scenario.isSet {
		agents = append(agents, sabotage.Kind{Weight: 2, Draw: w.drawShrinkSet})
	}
	if w.scenario.isSteady { // Ready must be False during a blackout
		return append(agents, sabotage.Kind{Weight: 2, Draw: w.drawBlackout})
	}
	return append(agents,
		sabotage.Kind{Weight: 4, Draw: w.drawKillController},
		sabotage.Kind{Weight: 2, Draw: w.drawEndController},
		sabotage.Kind{Weight: 3, Draw: func(r *rand.Rand) sabotage.Fault { return w.newFreeze(sabotage.Some(r, w.controllers)) }},
		sabotage.Kind{Weight: 3, Draw: w.ofServers(w.servers.Restart)},
		sabotage.Kind{Weight: 2, Draw: w.ofServers(w.servers.Freeze)},
		sabotage.Kind{Weight: 2, Draw: w.drawRestore},
	)
}

// troubling is a fault of a controller or a server: while it lasts, conditions may be wrong.
type troubling struct {
	sabotage.Fault

	world *world
	end   func()
}

// Inject implements [sabotage.Fault].
func (f *troubling) Inject(ctx context.Context) error {
	f.end = f.world.trouble()
	return f.Fault.Inject(ctx)
}

// Heal implements [sabotage.Fault].
func (f *troubling) Heal(ctx context.Context) error {
	err := f.Fault.Heal(ctx)
	if err == nil {
		f.end()
	}
	return err
}

// onTheWay draws victims for a fault on the way to the API server.
func (w *world) onTheWay(draw func(*rand.Rand, []*process) sabotage.Fault) func(*rand.Rand) sabotage.Fault {
	return func(r *rand.Rand) sabotage.Fault {
		if w.scenario.isSteady {
			return draw(r, w.pods)
		}
		return &troubling{Fault: draw(r, w.all()), world: w}
	}
}

func (w *world) ofServers(draw func(*rand.Rand) sabotage.Fault) func(*rand.Rand) sabotage.Fault {
	return func(r *rand.Rand) sabotage.Fault { return &troubling{Fault: draw(r), world: w} }
}

// downtime keeps processes down. They start again as the same containers or as new pods.
type downtime struct {
	victims []*process
	down    func(*process) error
	asNew   bool
	what    string
	count   int // victims that are down
}

// Inject implements [sabotage.Fault].
func (f *downtime) Inject(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, f.down(p))
		f.count++
	}
	return errors.Join(errs...)
}

// Heal implements [sabotage.Fault].
func (f *downtime) Heal(ctx context.Context) error {
	for ; f.count > 0; f.count-- {
		if err := f.victims[f.count-1].release(ctx, f.asNew); err != nil {
			return err
		}
	}
	return nil
}

// String describes the fault.
func (f *downtime) String() string {
	text := f.what + " of " + sabotage.Names(f.victims)
	if f.asNew {
		text += ", replaced by new pods"
	}
	return text
}

// Separate types are counted separately.
type (
	killAgent      struct{ downtime }
	replacePod     struct{ downtime }
	killController struct{ downtime }
	endController  struct{ downtime }
)

// drawKillAgent is kill -9 of agents, or of their containers.
func (w *world) drawKillAgent(r *rand.Rand) sabotage.Fault {
	f := &killAgent{downtime{victims: sabotage.Some(r, w.pods), asNew: r.IntN(2) == 0, what: "kill -9"}}
	withGuard := r.IntN(3) == 0
	if withGuard {
		f.what = "kill -9 of the whole container"
	}
	f.down = func(p *process) error { return p.kill(withGuard) }
	return f
}

// drawReplacePod ends pods as a drain does.
func (w *world) drawReplacePod(r *rand.Rand) sabotage.Fault {
	return &replacePod{downtime{victims: sabotage.Some(r, w.pods), asNew: true, down: (*process).terminate, what: "SIGTERM"}}
}

func (w *world) drawKillController(r *rand.Rand) sabotage.Fault {
	return &troubling{Fault: &killController{downtime{
		victims: sabotage.Some(r, w.controllers), down: func(p *process) error { return p.kill(false) }, what: "kill -9",
	}}, world: w}
}

func (w *world) drawEndController(r *rand.Rand) sabotage.Fault {
	return &troubling{Fault: &endController{downtime{victims: sabotage.Some(r, w.controllers), down: (*process).terminate, what: "SIGTERM"}}, world: w}
}

// freeze is SIGSTOP and then SIGCONT: a process stops for longer than its Lease lasts, and continues
// without notice.
type freeze struct{ victims []*process }

// Separate types are counted separately.
type (
	freezeAgent      struct{ freeze }
	freezeController struct{ freeze }
)

func (w *world) newFreeze(victims []*process) sabotage.Fault {
	if victims[0].isAgent {
		return &freezeAgent{freeze{victims}}
	}
	return &troubling{Fault: &freezeController{freeze{victims}}, world: w}
}

// Inject implements [sabotage.Fault].
func (f *freeze) Inject(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.freeze())
	}
	return errors.Join(errs...)
}

// Heal implements [sabotage.Fault].
func (f *freeze) Heal(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.thaw())
	}
	return errors.Join(errs...)
}

// String describes the fault.
func (f *freeze) String() string { return "SIGSTOP of " + sabotage.Names(f.victims) }
