// Command ui serves the page of kubectl nodekeeper ui in a cluster: on loopback in its pod, which kubectl port-forward reaches. It has the
// flags of that command. See docs/how-to/use-the-live-page.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/plugin/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return cli.UIMain(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}
