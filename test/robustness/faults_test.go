package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// saboteurCount is the maximum number of concurrent faults.
	saboteurCount = 3
	// The duration of a fault, and the time until the next one. The minimum allows several faults in a
	// short run; the maximum exceeds the life of a lock (5 s) plus a head start.
	minHold, maxHold   = 500 * time.Millisecond, 9 * time.Second
	minPause, maxPause = 500 * time.Millisecond, 3 * time.Second
)

// fault is a temporary failure.
type fault interface {
	// inject causes the failure, and heal ends it. heal is called even if inject returns an error.
	inject(ctx context.Context) error
	heal(ctx context.Context) error
	String() string
}

// draw creates a fault, or returns nil if its type does not fit the scenario.
type draw func(w *world, r *rand.Rand) fault

// kinds are all types of faults, with the weights for drawing them.
var kinds = []struct {
	weight int
	draw   draw
}{
	{4, drawKillProcess},
	{2, drawReplaceProcess},
	{3, drawShortLives},
	{4, drawFreezeProcess},
	{3, drawRestartServer},
	{2, drawFreezeServer},
	{3, drawDelayAnswers},
	{3, drawDropAnswers},
	{4, drawRefuseRequests},
	{3, drawCutWatches},
	{2, drawGoneWatches},
	{2, drawSkewClocks},
	{2, drawFillQuota},
	{2, drawRevokeRights},
}

// drawFault draws until a fault fits the scenario.
func drawFault(w *world, r *rand.Rand) fault {
	all := 0
	for _, k := range kinds {
		all += k.weight
	}
	for {
		at := r.IntN(all)
		for _, k := range kinds {
			if at -= k.weight; at >= 0 {
				continue
			}
			if f := k.draw(w, r); f != nil {
				return f
			}
			break
		}
	}
}

// sabotage injects consecutive faults until ctx is cancelled, and heals all of them.
func (w *world) sabotage(ctx context.Context, r *rand.Rand, log func(format string, args ...any)) {
	for wait(ctx, between(r, minPause, maxPause)) {
		f := drawFault(w, r)
		log("inject %v", f)
		if err := f.inject(ctx); err != nil {
			log("inject %v: %v", f, err) // another fault has stopped the API server
		} else {
			w.count(w.faults, typeName(f))
		}
		wait(ctx, between(r, minHold, maxHold))
		if err := eventually(context.WithoutCancel(ctx), f.heal); err != nil {
			w.fail("healing %v: %v", f, err)
		}
		log("healed %v", f)
	}
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// typeName returns the name of a fault's type.
func typeName(f fault) string {
	name := fmt.Sprintf("%T", f)
	return name[strings.LastIndex(name, ".")+1:]
}

// some draws one or several of the processes.
func some(r *rand.Rand, from []*process) []*process {
	chosen := []*process{from[r.IntN(len(from))]}
	for _, p := range from {
		if p != chosen[0] && r.IntN(3) == 0 {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// names returns the names of processes as one word.
func names(of []*process) string {
	var all []string
	for _, p := range of {
		all = append(all, p.name)
	}
	return strings.Join(all, "+")
}
