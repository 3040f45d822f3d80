package sabotage_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/test/sabotage"
)

// counted is a fault that cannot be healed at first.
type counted struct{ injected, healed, attempts *atomic.Int32 }

func (c counted) Inject(context.Context) error {
	c.injected.Add(1)
	return nil
}

func (c counted) Heal(context.Context) error {
	if c.attempts.Add(1)%2 == 1 {
		return errors.New("a server is stopped")
	}
	c.healed.Add(1)
	return nil
}

func (c counted) String() string { return "counted" }

func TestEachFaultIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := counted{&atomic.Int32{}, &atomic.Int32{}, &atomic.Int32{}}
		var begun, failed atomic.Int32
		s := sabotage.Saboteur{
			Kinds: []sabotage.Kind{
				{Weight: 1, Draw: func(*rand.Rand) sabotage.Fault { return nil }}, // never fits
				{Weight: 1, Draw: func(*rand.Rand) sabotage.Fault { return f }},
			},
			Log:      func(string, ...any) {},
			Injected: func(sabotage.Fault) { begun.Add(1) },
			Fail:     func(string, ...any) { failed.Add(1) },
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Run(ctx, rand.New(rand.NewPCG(1, 2)))
		assert.Greater(t, f.injected.Load(), int32(5))
		assert.Equal(t, f.injected.Load(), f.healed.Load())
		assert.Equal(t, f.injected.Load(), begun.Load())
		assert.Zero(t, failed.Load())
	})
}
