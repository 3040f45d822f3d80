package robustness

import (
	"context"
	"errors"
	"time"

	"nodekeeper.dev/test/sabotage"
)

// sightTime bounds the lag of a watcher without faults: events that are older when a server stops
// have been seen.
const sightTime = 3 * time.Second

// sights records for which times no watcher may see events, because a server does not respond:
// watches end with it, so events of the last moment before it may not be seen by any watcher. There
// is one outage at a time.
type sights struct {
	world   *world
	unblind func(to uint64) // nil if the outage has not begun
}

// goBlind returns once every earlier event has been seen.
func (s *sights) goBlind(ctx context.Context) error {
	from, err := s.world.storage.revision(ctx)
	if err != nil {
		return err
	}
	s.unblind = s.world.goBlind(from)
	if !sabotage.Wait(ctx, sightTime) {
		return ctx.Err()
	}
	return nil
}

// await returns once the watcher without faults receives events again.
func (s *sights) await(ctx context.Context) error {
	if s.unblind == nil {
		return nil
	}
	sabotage.Wait(ctx, sightTime) // until then, a watch that is ending has ended
	err := eventually(ctx, func(context.Context) error {
		for _, p := range s.world.crew {
			if p.isAnchor && !p.proxy.Watching("nodes") {
				return errors.New(p.name + " does not watch")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	to, err := s.world.storage.revision(ctx)
	if err == nil {
		s.unblind(to)
		s.unblind = nil
	}
	return err
}
