package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"nodekeeper.dev/test/sabotage"
)

// downtime keeps processes down. They start again as the same containers or as new pods.
type downtime struct {
	victims []*process
	asNew   bool
	count   int // victims that are down
}

// begin stops every victim.
func (d *downtime) begin(down func(*process) error) error {
	var errs []error
	for _, p := range d.victims {
		errs = append(errs, down(p))
		d.count++
	}
	return errors.Join(errs...)
}

// end releases the victims that are down.
func (d *downtime) end() {
	for ; d.count > 0; d.count-- {
		d.victims[d.count-1].release(d.asNew)
	}
}

// killProcess is kill -9. The same container or a new pod starts after a while.
type killProcess struct{ downtime }

func (w *world) drawKillProcess(r *rand.Rand) sabotage.Fault {
	return &killProcess{downtime{victims: sabotage.Some(r, w.victims()), asNew: r.IntN(2) == 0}}
}

func (f *killProcess) Inject(context.Context) error { return f.begin((*process).kill) }

func (f *killProcess) Heal(context.Context) error { f.end(); return nil }

func (f *killProcess) String() string { return "kill -9 of " + sabotage.Names(f.victims) }

// replaceProcess ends a pod as a rolling update or a drain does, and starts a new pod after a
// while: members leave the rings and others join.
type replaceProcess struct{ downtime }

func (w *world) drawReplaceProcess(r *rand.Rand) sabotage.Fault {
	return &replaceProcess{downtime{victims: sabotage.Some(r, w.victims()), asNew: true}}
}

func (f *replaceProcess) Inject(context.Context) error { return f.begin((*process).terminate) }

func (f *replaceProcess) Heal(context.Context) error { f.end(); return nil }

func (f *replaceProcess) String() string { return "SIGTERM of " + sabotage.Names(f.victims) }

// shortLives repeatedly replaces processes by new pods: kill -9, and another identity. No pod lives
// for much longer than a second.
type shortLives struct {
	victims []*process
	end     context.CancelFunc
	ended   sync.WaitGroup
}

// lifetime is the time between two ends: a second plus the time in which a pod starts.
const lifetime = minBackoff + time.Second

func (w *world) drawShortLives(r *rand.Rand) sabotage.Fault {
	return &shortLives{victims: sabotage.Some(r, w.victims())}
}

func (f *shortLives) Inject(ctx context.Context) error {
	ctx, f.end = context.WithCancel(context.WithoutCancel(ctx))
	f.ended.Go(func() {
		for {
			for _, p := range f.victims {
				if err := p.replace(); err != nil {
					p.world.fail("replacing %s: %v", p.name, err)
				}
			}
			if !sabotage.Wait(ctx, lifetime) {
				return
			}
		}
	})
	return nil
}

func (f *shortLives) Heal(context.Context) error {
	f.end()
	f.ended.Wait()
	return nil
}

func (f *shortLives) String() string { return "short lives of " + sabotage.Names(f.victims) }

// freezeProcess is SIGSTOP and then SIGCONT: a process stops for longer than its locks live, and
// continues without notice.
type freezeProcess struct{ victims []*process }

func (w *world) drawFreezeProcess(r *rand.Rand) sabotage.Fault {
	return &freezeProcess{victims: sabotage.Some(r, w.victims())}
}

func (f *freezeProcess) Inject(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.freeze())
	}
	return errors.Join(errs...)
}

func (f *freezeProcess) Heal(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.thaw())
	}
	return errors.Join(errs...)
}

func (f *freezeProcess) String() string { return fmt.Sprint("SIGSTOP of ", sabotage.Names(f.victims)) }
