// Command demo shows on a terminal what nodekeeper does (make demo). It starts
// etcd and kube-apiserver, two watchers and two processors, plays a user who
// labels, deletes and re-creates nodes, and prints the events that it sees in the
// API. It exits with 0 only if every step had the expected result.
//
// stage.go holds everything that runs: crew.go starts and kills nodekeeper's
// processes, user.go acts as the user of the cluster. observer.go watches the API,
// and history.go evaluates the events. steps.go lists the steps, which are in
// remember.go, comeback.go, crash.go and audit.go. summary.go and keep.go end the
// demo, and describe.go formats its output. Package story has what it shares with
// the demo of the sharder.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"nodekeeper.dev/test/story"
)

// storyLimit ends a demo that hangs. It normally takes about 20 seconds, and every wait has its own deadline.
const storyLimit = 5 * time.Minute

func main() { story.Main("demo", run) }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	keep := flags.Bool("keep", false, "keep everything running after the last step, until Ctrl-C")
	file := flags.String("o", "", "the `file` to which the output goes too, without colours; none if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	out := story.NewScreen(os.Stdout)
	if *file != "" {
		f, err := os.Create(*file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // whoever reads it sees what is missing
		out.AlsoTo(f)
	}
	context.AfterFunc(ctx, func() { out.Note("Shutting down ...") })
	s, err := openStage(ctx, out)
	if err != nil {
		return story.OrInterrupted(ctx, err)
	}
	err = perform(ctx, s, *keep)
	return errors.Join(err, s.close())
}

// perform runs the steps, and then keeps everything running if keep is set.
func perform(ctx context.Context, s *stage, keep bool) error {
	results := story.Play(ctx, storyLimit, s.out, s.steps(), s.crew.Check)
	if err := story.OrInterrupted(ctx, nil); err != nil {
		return err
	}
	s.printSummary(results)
	err := story.Failure(results)
	if err != nil {
		s.crew.SaveLogs()
	}
	if keep {
		s.keepOpen(ctx) // until Ctrl-C, which is no error
	}
	return err
}
