package sabotage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"nodekeeper.dev/test/faultproxy"
)

// Victim is a program behind a proxy.
type Victim interface {
	comparable
	fmt.Stringer

	// Proxy returns the proxy through which the program reaches the API server.
	Proxy() *faultproxy.Proxy
}

// OnTheWay is a fault between programs and the API server.
type OnTheWay struct {
	what    faultproxy.Fault
	names   string
	victims []*faultproxy.Proxy
	healers []func()
}

// NewOnTheWay returns a fault between some programs and the API server.
func NewOnTheWay[V Victim](victims []V, what faultproxy.Fault) OnTheWay {
	f := OnTheWay{what: what, names: Names(victims)}
	for _, v := range victims {
		f.victims = append(f.victims, v.Proxy())
	}
	return f
}

// Inject implements [Fault].
func (f *OnTheWay) Inject(context.Context) error {
	for _, p := range f.victims {
		f.healers = append(f.healers, p.Inject(f.what))
	}
	return nil
}

// Heal implements [Fault].
func (f *OnTheWay) Heal(context.Context) error {
	for _, heal := range f.healers {
		heal()
	}
	f.healers = nil
	return nil
}

// String describes the fault.
func (f *OnTheWay) String() string { return fmt.Sprintf("%T%+v for %s", f.what, f.what, f.names) }

// Separate types are counted separately.
type (
	delayAnswers   struct{ OnTheWay }
	dropAnswers    struct{ OnTheWay }
	refuseRequests struct{ OnTheWay }
	goneWatches    struct{ OnTheWay }
	cutWatches     struct{ OnTheWay }
)

// DelayAnswers draws a fault that delays responses.
func DelayAnswers[V Victim](r *rand.Rand, from []V) Fault {
	victims := Some(r, from)
	return &delayAnswers{NewOnTheWay(victims, faultproxy.Delay{Share: share(r), For: Between(r, 50*time.Millisecond, 4*time.Second)})}
}

// DropAnswers draws a fault that drops the responses of successful writes.
func DropAnswers[V Victim](r *rand.Rand, from []V) Fault {
	victims := Some(r, from)
	return &dropAnswers{NewOnTheWay(victims, faultproxy.DropAnswers{Share: share(r)})}
}

// RefuseRequests returns what draws a fault that responds with an error of an API server: 409, 429,
// 500, 503, or one of more codes.
func RefuseRequests[V Victim](more ...int) func(r *rand.Rand, from []V) Fault {
	codes := append([]int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}, more...)
	return func(r *rand.Rand, from []V) Fault {
		victims := Some(r, from)
		return &refuseRequests{NewOnTheWay(victims, faultproxy.Refuse{Share: share(r), Code: codes[r.IntN(len(codes))]})}
	}
}

// GoneWatches draws a fault that responds to every watch with 410 Gone, and ends open watches so
// that they restart.
func GoneWatches[V Victim](r *rand.Rand, from []V) Fault {
	return &goneWatches{NewOnTheWay(Some(r, from), faultproxy.GoneWatches{})}
}

// Inject implements [Fault].
func (f *goneWatches) Inject(ctx context.Context) error {
	if err := f.OnTheWay.Inject(ctx); err != nil {
		return err
	}
	f.cut()
	return nil
}

// CutWatches draws a fault that ends open watches. There is nothing to heal.
func CutWatches[V Victim](r *rand.Rand, from []V) Fault {
	return &cutWatches{NewOnTheWay(Some(r, from), nil)}
}

// Inject implements [Fault].
func (f *cutWatches) Inject(context.Context) error {
	f.cut()
	return nil
}

// String describes the fault.
func (f *cutWatches) String() string { return "end of the watches of " + f.names }

func (f *OnTheWay) cut() {
	for _, p := range f.victims {
		p.CutWatches()
	}
}

// share draws the share of requests that fail. Often it is all of them.
func share(r *rand.Rand) float64 {
	if r.IntN(3) == 0 {
		return 1
	}
	return 0.1 + 0.8*r.Float64()
}
