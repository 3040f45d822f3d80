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
	"time"

	"nodekeeper.dev/test/story"
)

// storyLimit ends a demo that hangs. It normally takes about 30 seconds, and every wait has its own deadline.
const storyLimit = 8 * time.Minute

func main() { story.Main("shard-demo", run) }

func run(ctx context.Context, _ []string) error {
	out := story.NewScreen(os.Stdout)
	context.AfterFunc(ctx, func() { out.Note("Shutting down ...") })
	s, err := openStage(ctx, out)
	if err == nil {
		err = errors.Join(perform(ctx, s), s.close())
	}
	return story.OrInterrupted(ctx, err)
}

// perform runs the steps.
func perform(ctx context.Context, s *stage) error {
	results := story.Play(ctx, storyLimit, s.out, s.steps(), s.check)
	if err := story.OrInterrupted(ctx, nil); err != nil {
		return err
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
