// Command ui serves the page of kubectl nodekeeper ui in a cluster: on loopback in its pod, which kubectl port-forward reaches. It has the
// flags of that command. See docs/how-to/use-the-live-page.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nodekeeper.dev/internal/cli"
	"nodekeeper.dev/internal/version"
)

func main() {
	os.Exit(run())
}

func run() int {
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		_, _ = fmt.Fprintln(os.Stdout, version.Line("ui"))
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return cli.Main(ctx, append([]string{"ui"}, os.Args[1:]...), genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}
