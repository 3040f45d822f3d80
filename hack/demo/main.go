// Command demo shows on a terminal what nodekeeper does (make demo). It starts
// etcd and kube-apiserver, two watchers and two processors, plays a user who
// labels, deletes and re-creates nodes, and prints the events that it sees in the
// API. It exits with 0 only if every step had the expected result.
//
// stage.go holds everything that runs: crew.go starts and kills nodekeeper's
// processes, user.go acts as the user of the cluster. observer.go watches the API,
// and history.go evaluates the events. steps.go lists the steps, which are in
// remember.go, comeback.go, crash.go and audit.go. summary.go and keep.go end the
// demo; screen.go and describe.go format its output.
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

// storyLimit ends a demo that hangs. It normally takes about 20 seconds, and every wait has its own deadline.
const storyLimit = 5 * time.Minute

var (
	errInterrupted   = errors.New("interrupted")
	errNotAsExpected = errors.New("not everything happened as expected")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends this process and its children at once.
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
	keep := flags.Bool("keep", false, "keep everything running after the last step, until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Logs of the libraries would interrupt the output.
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	out := newScreen(os.Stdout)
	context.AfterFunc(ctx, func() { out.note("Shutting down ...") })
	s, err := openStage(ctx, out)
	if err != nil {
		return interruptedOr(ctx, err)
	}
	err = perform(ctx, s, *keep)
	return errors.Join(err, s.close())
}

// perform runs the steps, and then keeps everything running if keep is set.
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
		s.keepOpen(ctx) // until Ctrl-C, which is no error
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
