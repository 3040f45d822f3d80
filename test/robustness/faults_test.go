package robustness

import (
	"math/rand/v2"
	"time"

	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/sabotage"
)

// saboteurCount is the maximum number of concurrent faults. Each may last longer than a lock lives
// (5 s) plus a head start.
const saboteurCount = 3

// kinds returns all types of faults, with the weights for drawing them.
func (w *world) kinds() []sabotage.Kind {
	return []sabotage.Kind{
		{Weight: 4, Draw: w.drawKillProcess},
		{Weight: 2, Draw: w.drawReplaceProcess},
		{Weight: 3, Draw: w.drawShortLives},
		{Weight: 4, Draw: w.drawFreezeProcess},
		{Weight: 3, Draw: w.servers.Restart},
		{Weight: 2, Draw: w.servers.Freeze},
		{Weight: 3, Draw: w.onTheWay(sabotage.DelayAnswers[*process])},
		{Weight: 3, Draw: w.onTheWay(sabotage.DropAnswers[*process])},
		{Weight: 4, Draw: w.onTheWay(sabotage.RefuseRequests[*process]())},
		{Weight: 3, Draw: w.onTheWay(sabotage.CutWatches[*process])},
		{Weight: 2, Draw: w.onTheWay(sabotage.GoneWatches[*process])},
		{Weight: 2, Draw: w.drawSkewClocks},
		{Weight: 2, Draw: w.drawFillQuota},
		{Weight: 2, Draw: w.drawRevokeRights},
	}
}

// onTheWay draws victims for a fault on the way to the API server.
func (w *world) onTheWay(draw func(*rand.Rand, []*process) sabotage.Fault) func(*rand.Rand) sabotage.Fault {
	return func(r *rand.Rand) sabotage.Fault { return draw(r, w.victims()) }
}

// skewClocks shifts the clocks of processors, as far as Leases show them: see
// [faultproxy.SkewClock].
type skewClocks struct{ sabotage.OnTheWay }

func (w *world) drawSkewClocks(r *rand.Rand) sabotage.Fault {
	by := sabotage.Between(r, 10*time.Second, 2*time.Hour)
	if r.IntN(2) == 0 {
		by = -by
	}
	var processors []*process
	for _, p := range w.victims() {
		if p.program == "processor" {
			processors = append(processors, p)
		}
	}
	return &skewClocks{sabotage.NewOnTheWay(sabotage.Some(r, processors), faultproxy.SkewClock{By: by})}
}
