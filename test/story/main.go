package story

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

var errInterrupted = errors.New("interrupted")

// Main runs a demo with the arguments of the command, and ends the process with 1 if it fails. The
// context ends when somebody ends the process; the second time, the process and its children end at
// once. Logs of the libraries would interrupt the output, and are not shown.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// OrInterrupted returns err, unless it only comes from somebody who ended the demo.
func OrInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}
