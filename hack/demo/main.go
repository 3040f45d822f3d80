// Command demo shows on a terminal what nodekeeper does (make demo). It starts
// etcd and kube-apiserver, two watchers and two processors, plays a user who
// labels, deletes and re-creates nodes, and prints what is seen in the API. It
// ends with 0 only if everything that it tells was seen.
//
// stage.go is what runs: crew.go nodekeeper's processes, user.go who uses the
// cluster. observer.go watches the API and history.go reads what it saw. steps.go
// lists the story, whose steps are in remember.go, comeback.go, crash.go and
// audit.go; summary.go and keep.go are its end, screen.go and describe.go how it looks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// storyLimit ends a story that hangs. One takes about 20 seconds; every wait in it has its own deadline.
const storyLimit = 5 * time.Minute

var (
	errInterrupted = errors.New("interrupted")
	errNotAsTold   = errors.New("not everything was as told")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends this process at once; what it started ends with it.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		_, _ = fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	keep := flags.Bool("keep", false, "leave everything running after the story, until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// What the libraries log would stand in the middle of the story.
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	out := newScreen(os.Stdout)
	context.AfterFunc(ctx, func() { out.note("Ending everything ...") })
	s, err := openStage(ctx, out)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	err = perform(ctx, s, *keep)
	return errors.Join(err, s.close())
}

// perform plays the story, and after it keeps the stage open if that is asked for.
func perform(ctx context.Context, s *stage, keep bool) error {
	storyCtx, cancel := context.WithTimeout(ctx, storyLimit)
	defer cancel()
	results := play(storyCtx, s, story())
	if ctx.Err() != nil {
		return errInterrupted
	}
	s.printSummary(results)
	err := failure(results)
	if err != nil {
		s.crew.saveLogs()
	}
	if keep {
		s.keepOpen(ctx) // until Ctrl-C, which is how it is meant to end
	}
	return err
}

// interruptedOr returns err, unless it only comes from Ctrl-C.
func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
