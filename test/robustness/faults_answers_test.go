package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"nodekeeper.dev/test/faultproxy"
)

// onTheWay is a fault between processes and the API server.
type onTheWay struct {
	victims []*process
	fault   faultproxy.Fault
	healers []func()
}

func (f *onTheWay) inject(context.Context) error {
	for _, p := range f.victims {
		f.healers = append(f.healers, p.proxy.Inject(f.fault))
	}
	return nil
}

//nolint:unparam // it is a fault's
func (f *onTheWay) heal(context.Context) error {
	for _, heal := range f.healers {
		heal()
	}
	f.healers = nil
	return nil
}

func (f *onTheWay) String() string {
	return fmt.Sprintf("%T%+v for %s", f.fault, f.fault, names(f.victims))
}

// delayAnswers delays responses.
type delayAnswers struct{ onTheWay }

func drawDelayAnswers(w *world, r *rand.Rand) fault {
	return &delayAnswers{onTheWay{victims: some(r, w.victims()), fault: faultproxy.Delay{
		Share: share(r), For: between(r, 50*time.Millisecond, 4*time.Second),
	}}}
}

// dropAnswers drops the responses of successful writes.
type dropAnswers struct{ onTheWay }

func drawDropAnswers(w *world, r *rand.Rand) fault {
	return &dropAnswers{onTheWay{victims: some(r, w.victims()), fault: faultproxy.DropAnswers{Share: share(r)}}}
}

// refuseRequests responds with errors of an API server.
type refuseRequests struct{ onTheWay }

func drawRefuseRequests(w *world, r *rand.Rand) fault {
	codes := []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	return &refuseRequests{onTheWay{victims: some(r, w.victims()), fault: faultproxy.Refuse{
		Share: share(r), Code: codes[r.IntN(len(codes))],
	}}}
}

// goneWatches responds to every watch with 410 Gone, and ends open watches so that they restart.
type goneWatches struct{ onTheWay }

func drawGoneWatches(w *world, r *rand.Rand) fault {
	return &goneWatches{onTheWay{victims: some(r, w.victims()), fault: faultproxy.GoneWatches{}}}
}

func (f *goneWatches) inject(ctx context.Context) error {
	if err := f.onTheWay.inject(ctx); err != nil {
		return err
	}
	for _, p := range f.victims {
		p.proxy.CutWatches()
	}
	return nil
}

// skewClocks shifts the clocks of processors, as far as Leases show them: see
// [faultproxy.SkewClock].
type skewClocks struct{ onTheWay }

func drawSkewClocks(w *world, r *rand.Rand) fault {
	by := between(r, 10*time.Second, 2*time.Hour)
	if r.IntN(2) == 0 {
		by = -by
	}
	var processors []*process
	for _, p := range w.victims() {
		if p.program == "processor" {
			processors = append(processors, p)
		}
	}
	return &skewClocks{onTheWay{victims: some(r, processors), fault: faultproxy.SkewClock{By: by}}}
}

// cutWatches ends open watches. There is nothing to heal.
type cutWatches struct{ victims []*process }

func drawCutWatches(w *world, r *rand.Rand) fault { return &cutWatches{victims: some(r, w.victims())} }

func (f *cutWatches) inject(context.Context) error {
	for _, p := range f.victims {
		p.proxy.CutWatches()
	}
	return nil
}

func (f *cutWatches) heal(context.Context) error { return nil }

func (f *cutWatches) String() string { return "end of the watches of " + names(f.victims) }

// share draws the share of requests that fail. Often it is all of them.
func share(r *rand.Rand) float64 {
	if r.IntN(3) == 0 {
		return 1
	}
	return 0.1 + 0.8*r.Float64()
}
