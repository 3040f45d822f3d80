// Command queue is the example of placement: an HTTP queue with numbered partitions, its worker,
// and a check of what was done.
//
//   - queue serve keeps the messages of all partitions, and a log of everything that was done. It
//     refuses the requests of workers whose epoch is lower than the highest one so far, and records
//     that.
//   - queue work, under placement agent --exec, works on one partition.
//   - queue add adds messages.
//   - queue check reads the log, and checks that the messages of each partition were done in order,
//     that none is missing, and that no two owners took turns. It counts the requests that were
//     refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `Usage:
  queue serve [--listen ADDRESS] [--dir DIRECTORY]
  queue work  [--url URL] [--work DURATION]
  queue add   [--url URL] [--partitions N] [--count N] QUEUE
  queue check [--url URL] [--wait DURATION]

queue COMMAND --help lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("give a command, serve, work, add or check: see queue --help")
	}
	flags := flag.NewFlagSet("queue "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	c := &client{}
	if args[0] != "serve" {
		flags.StringVar(&c.url, "url", "http://127.0.0.1:8080", "`URL` of the queue")
	}
	var command func() error
	switch args[0] {
	case "serve":
		listen := flags.String("listen", ":8080", "`address` to listen on")
		dir := flags.String("dir", ".", "`directory` of the log, which keeps all messages")
		command = func() error { return serve(ctx, *listen, *dir, stderr) }
	case "work":
		took := flags.Duration("work", 0, "how long the work on a message takes")
		command = func() error { return work(ctx, c, *took, stdout) }
	case "add":
		partitions := flags.Int("partitions", 1, "`number` of partitions, which get the messages in turn")
		count := flags.Int("count", 1, "`number` of messages")
		command = func() error { return add(ctx, c, flags.Arg(0), *partitions, *count) }
	case "check":
		wait := flags.Duration("wait", 0, "how long to wait until all messages are done; 0: do not wait, and accept that some are not")
		command = func() error { return awaitCheck(ctx, c, *wait, stdout) }
	case "-h", "-help", "--help", "help":
		_, err := io.WriteString(stderr, usage)
		return err //nolint:wrapcheck // of the standard error output
	default:
		return fmt.Errorf("unknown command %q: see queue --help", args[0])
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err //nolint:wrapcheck // it names the flag
	}
	return command()
}

// pause waits, or returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
