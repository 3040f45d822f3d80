package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
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

func drawKillProcess(w *world, r *rand.Rand) fault {
	return &killProcess{downtime{victims: some(r, w.victims()), asNew: r.IntN(2) == 0}}
}

func (f *killProcess) inject(context.Context) error { return f.begin((*process).kill) }

func (f *killProcess) heal(context.Context) error { f.end(); return nil }

func (f *killProcess) String() string { return "kill -9 of " + names(f.victims) }

// replaceProcess ends a pod as a rolling update or a drain does, and starts a new pod after a
// while: members leave the rings and others join.
type replaceProcess struct{ downtime }

func drawReplaceProcess(w *world, r *rand.Rand) fault {
	return &replaceProcess{downtime{victims: some(r, w.victims()), asNew: true}}
}

func (f *replaceProcess) inject(context.Context) error { return f.begin((*process).terminate) }

func (f *replaceProcess) heal(context.Context) error { f.end(); return nil }

func (f *replaceProcess) String() string { return "SIGTERM of " + names(f.victims) }

// shortLives repeatedly replaces processes by new pods: kill -9, and another identity. No pod lives
// for much longer than a second.
type shortLives struct {
	victims []*process
	end     context.CancelFunc
	ended   sync.WaitGroup
}

// lifetime is the time between two ends: a second plus the time in which a pod starts.
const lifetime = minBackoff + time.Second

func drawShortLives(w *world, r *rand.Rand) fault { return &shortLives{victims: some(r, w.victims())} }

func (f *shortLives) inject(ctx context.Context) error {
	ctx, f.end = context.WithCancel(context.WithoutCancel(ctx))
	f.ended.Go(func() {
		for {
			for _, p := range f.victims {
				if err := p.replace(); err != nil {
					p.world.fail("replacing %s: %v", p.name, err)
				}
			}
			if !wait(ctx, lifetime) {
				return
			}
		}
	})
	return nil
}

func (f *shortLives) heal(context.Context) error {
	f.end()
	f.ended.Wait()
	return nil
}

func (f *shortLives) String() string { return "short lives of " + names(f.victims) }

// freezeProcess is SIGSTOP and then SIGCONT: a process stops for longer than its locks live, and
// continues without notice.
type freezeProcess struct{ victims []*process }

func drawFreezeProcess(w *world, r *rand.Rand) fault {
	return &freezeProcess{victims: some(r, w.victims())}
}

func (f *freezeProcess) inject(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.freeze())
	}
	return errors.Join(errs...)
}

func (f *freezeProcess) heal(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.thaw())
	}
	return errors.Join(errs...)
}

func (f *freezeProcess) String() string { return fmt.Sprint("SIGSTOP of ", names(f.victims)) }
