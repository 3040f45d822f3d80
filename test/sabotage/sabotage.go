// Package sabotage injects temporary failures that a seed determines into running programs, and
// heals them: on the way to the API server, by the [faultproxy], and of the servers themselves. The
// robustness suites of the products add faults of their own.
package sabotage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// The duration of a fault, and the time until the next one. The minimum allows several faults in a
	// short run.
	minHold, maxHold   = 500 * time.Millisecond, 9 * time.Second
	minPause, maxPause = 500 * time.Millisecond, 3 * time.Second
	// healPeriod and healPatience are for a fault that cannot be healed yet, because a server is
	// stopped.
	healPeriod, healPatience = 100 * time.Millisecond, 3 * time.Minute
)

// Fault is a temporary failure.
type Fault interface {
	// Inject causes the failure, and Heal ends it. Heal is called even if Inject returns an error, and
	// again if it returns one.
	Inject(ctx context.Context) error
	Heal(ctx context.Context) error
	String() string
}

// Kind is a type of faults, with the weight for drawing one.
type Kind struct {
	Weight int
	// Draw creates a fault, or returns nil if its type does not fit now.
	Draw func(r *rand.Rand) Fault
}

// Saboteur injects faults of some types.
type Saboteur struct {
	Kinds []Kind
	// MaxHold is the maximum duration of a fault; 0: nine seconds.
	MaxHold time.Duration
	// Log is called when a fault begins and ends, Injected with each that has begun, and Fail when one
	// cannot be healed. They must be safe for concurrent use.
	Log      func(format string, args ...any)
	Injected func(Fault)
	Fail     func(format string, args ...any)
}

// Run injects consecutive faults until ctx is canceled, and heals all of them. It may run several
// times at once.
func (s *Saboteur) Run(ctx context.Context, r *rand.Rand) {
	most := s.MaxHold
	if most == 0 {
		most = maxHold
	}
	for Wait(ctx, Between(r, minPause, maxPause)) {
		f := s.draw(r)
		s.Log("inject %v", f)
		if err := f.Inject(ctx); err != nil {
			s.Log("inject %v: %v", f, err) // another fault has stopped the API server
		} else {
			s.Injected(f)
		}
		Wait(ctx, Between(r, minHold, most))
		if err := heal(context.WithoutCancel(ctx), f); err != nil {
			s.Fail("healing %v: %v", f, err)
		}
		s.Log("healed %v", f)
	}
}

// draw draws until a fault fits.
func (s *Saboteur) draw(r *rand.Rand) Fault {
	all := 0
	for _, k := range s.Kinds {
		all += k.Weight
	}
	for {
		at := r.IntN(all)
		for _, k := range s.Kinds {
			if at -= k.Weight; at >= 0 {
				continue
			}
			if f := k.Draw(r); f != nil {
				return f
			}
			break
		}
	}
}

// heal tries to heal a fault until that succeeds.
func heal(ctx context.Context, f Fault) error {
	ctx, cancel := context.WithTimeout(ctx, healPatience)
	defer cancel()
	for {
		err := f.Heal(ctx)
		if err == nil || !Wait(ctx, healPeriod) {
			return err
		}
	}
}

// Wait waits for a time. It returns false if ctx is canceled before.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Between draws a duration.
func Between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// TypeName returns the name of a fault's type.
func TypeName(f Fault) string {
	name := fmt.Sprintf("%T", f)
	return name[strings.LastIndex(name, ".")+1:]
}

// Some draws one or several of the victims.
func Some[V comparable](r *rand.Rand, from []V) []V {
	chosen := []V{from[r.IntN(len(from))]}
	for _, v := range from {
		if v != chosen[0] && r.IntN(3) == 0 {
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// Names returns the names of victims as one word.
func Names[V fmt.Stringer](of []V) string {
	var all []string
	for _, v := range of {
		all = append(all, v.String())
	}
	return strings.Join(all, "+")
}
