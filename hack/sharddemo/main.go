// Command sharddemo shows on a terminal what the sharder does (make shard-demo). It
// starts etcd and kube-apiserver, the sharder, and three shards of example-checksum,
// and plays a user who creates and edits Secrets while shards die, join and leave.
// After each step it prints which shard has what. It exits with 0 only if every step
// had the expected result, and no Secret was ever reconciled by two shards at once.
//
// stage.go holds everything that runs, user.go creates and edits Secrets. steps.go has
// the steps, view.go prints who has what, and journal.go checks what the shards wrote
// down about their work. Package story has what the demos share.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/hack/story"
)

// storyLimit ends a demo that hangs. It normally takes about 30 seconds, and every wait has its own deadline.
const storyLimit = 8 * time.Minute

var errInterrupted = errors.New("interrupted")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends this process and its children at once.
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "shard-demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// Logs of the libraries would interrupt the output.
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	out := story.NewScreen(os.Stdout)
	context.AfterFunc(ctx, func() { out.Note("Shutting down ...") })
	s, err := openStage(ctx, out)
	if err == nil {
		err = errors.Join(perform(ctx, s), s.close())
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// perform runs the steps.
func perform(ctx context.Context, s *stage) error {
	storyCtx, cancel := context.WithTimeout(ctx, storyLimit)
	defer cancel()
	results := story.Play(storyCtx, s.out, s.steps(), s.check)
	if ctx.Err() != nil {
		return errInterrupted
	}
	s.out.Summary(results)
	err := story.Failure(results)
	if err != nil {
		s.crew.SaveLogs()
		return err
	}
	s.out.Note(fmt.Sprintf("\n  Everything happened as expected, in %s.", story.InSeconds(time.Since(s.out.Start))))
	return nil
}
