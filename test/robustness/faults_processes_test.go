package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// killProcess is kill -9, and the start of the same container or of a new pod after a while.
type killProcess struct {
	victims []*process
	asNew   bool
	killed  int
}

func drawKillProcess(w *world, r *rand.Rand) fault {
	return &killProcess{victims: some(r, w.victims()), asNew: r.IntN(2) == 0}
}

func (f *killProcess) inject(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.kill())
		f.killed++
	}
	return errors.Join(errs...)
}

func (f *killProcess) heal(context.Context) error {
	for ; f.killed > 0; f.killed-- {
		f.victims[f.killed-1].release(f.asNew)
	}
	return nil
}

func (f *killProcess) String() string { return "kill -9 of " + names(f.victims) }

// replaceProcess is the end of a pod as a rolling update or a drain makes it, and a new pod after a while: members leave the
// rings and others join them.
type replaceProcess struct {
	victims []*process
	ended   int
}

func drawReplaceProcess(w *world, r *rand.Rand) fault {
	return &replaceProcess{victims: some(r, w.victims())}
}

func (f *replaceProcess) inject(context.Context) error {
	var errs []error
	for _, p := range f.victims {
		errs = append(errs, p.terminate())
		f.ended++
	}
	return errors.Join(errs...)
}

func (f *replaceProcess) heal(context.Context) error {
	for ; f.ended > 0; f.ended-- {
		f.victims[f.ended-1].release(true)
	}
	return nil
}

func (f *replaceProcess) String() string { return "SIGTERM of " + names(f.victims) }

// freezeProcess is SIGSTOP and then SIGCONT: a process that is away for longer than its locks live, and
// goes on as if nothing had been.
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
