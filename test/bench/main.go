// Command bench measures the cost and the speed of nodekeeper (make bench). It runs the built
// programs as processes with a real API server, and compares them with a bare client that performs
// the minimum of writes that the design needs.
//
// bulk.go, half.go, kill.go, churn.go, quiet.go, cut.go, replace.go and startup.go contain the
// measurements. cluster.go sets up the cluster, user.go deletes and creates nodes, observer.go
// observes the results, and bare.go is the yardstick. calls.go counts requests to the API server,
// usage.go the resources of processes, and report.go prints the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// options select the measurements. Zero omits a measurement.
type options struct {
	nodes     int
	replicas  []int
	churn     time.Duration
	churnRate int
	quiet     time.Duration
	half      bool
	kill      bool
	cut       time.Duration
	replace   int
	startup   int
	csv       string
	profiles  profiles
	setup     setup
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends this process immediately; its child processes end with it.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		_, _ = fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	// Log messages of libraries would interrupt the figures.
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	r := &report{out: os.Stdout}
	for _, replicas := range o.replicas {
		if err := measure(ctx, r, o, replicas); err != nil {
			return fmt.Errorf("with %d of each: %w", replicas, err)
		}
	}
	if o.cut > 0 {
		if err := cut(ctx, r, o.nodes, o.replicas[len(o.replicas)-1], o.cut); err != nil {
			return fmt.Errorf("cutting watches: %w", err)
		}
	}
	if o.replace > 0 {
		if err := errors.Join(replaceSteadily(ctx, r, o.replace), replaceAtOnce(ctx, r, o.replace)); err != nil {
			return fmt.Errorf("replacing replicas: %w", err)
		}
	}
	if o.startup > 0 {
		if err := startup(ctx, r, o.startup, o.setup); err != nil {
			return fmt.Errorf("measuring the start: %w", err)
		}
	}
	if o.csv == "" {
		return nil
	}
	return r.writeCSV(o.csv)
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", 1000, "how many `nodes` are deleted and come back")
	replicas := flags.String("replicas", "1,2,3", "how many watchers and processors there are, one measurement for each `number`")
	flags.DurationVar(&o.churn, "churn", 2*time.Minute, "how `long` nodes come and go steadily, with the last of the replicas; 0 for not at all")
	flags.IntVar(&o.churnRate, "churn-rate", 20, "how many `nodes` a second come and go then")
	flags.DurationVar(&o.quiet, "quiet", time.Minute, "how `long` nothing happens after that; 0 for not at all")
	flags.BoolVar(&o.half, "half", false, "do it with half of the nodes too, with the last of the replicas")
	flags.BoolVar(&o.kill, "kill", false, "do it once more and kill a processor meanwhile, with the last of the replicas")
	flags.DurationVar(&o.cut, "cut", 500*time.Millisecond, "the `time` between two cuts of all watches while nodes come back, with the last of the replicas; 0 for no such measurement")
	flags.IntVar(&o.replace, "replace", 60, "how many `nodes` come back while replicas are killed and replaced; 0 for no such measurement")
	flags.IntVar(&o.startup, "startup", 5000, "how many `nodes` there are when the time of a start is measured; 0 for no such measurement")
	flags.IntVar(&o.setup.images, "images", 0, "how many `images` the status of each node names; kubelets name 50")
	flags.BoolVar(&o.setup.preserves, "preserve", false, "give each node a taint and an annotation, which nodekeeper keeps besides the labels")
	flags.IntVar(&o.setup.webhooks, "webhooks", 0, "how many `webhooks` put the labels back in the requests that create nodes")
	flags.BoolVar(&o.setup.gate, "gate", false, "let the webhook give every returning node the startup taint")
	flags.BoolVar(&o.setup.kubelets, "kubelets", false, "let kubelets create the nodes, which may not set every label, and not an administrator")
	flags.StringVar(&o.profiles.dir, "profiles", "", "`directory` for profiles of the API server and the first of each program; empty for none")
	flags.DurationVar(&o.profiles.length, "profile-length", 10*time.Second, "how `long` a CPU profile lasts")
	flags.StringVar(&o.csv, "csv", "", "`file` for the figures; empty for none")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(*replicas, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-replicas %q: give numbers from 1 on, separated by commas", *replicas)
		}
		o.replicas = append(o.replicas, n)
	}
	if o.kill && o.replicas[len(o.replicas)-1] < 2 {
		return nil, errors.New("-kill needs two replicas at least: none would be left")
	}
	if o.nodes < 1 || o.churnRate < 1 || o.startup < 0 || o.replace < 0 || o.setup.webhooks < 0 {
		return nil, errors.New("-nodes and -churn-rate must be 1 or more, -startup, -replace and -webhooks 0 or more")
	}
	return o, nil
}

// measure performs the selected measurements with a number of watchers and processors, on its own
// control plane.
func measure(ctx context.Context, r *report, o *options, replicas int) (err error) {
	c, err := openCluster(ctx, o.setup)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.profiles = o.profiles
	isLast := replicas == o.replicas[len(o.replicas)-1]
	took, err := bulk(ctx, r, c, o.nodes, replicas)
	if err != nil || !isLast {
		return err
	}
	for _, more := range []struct {
		isWanted bool
		measure  func() error
	}{
		{o.half, func() error { return half(ctx, r, c, took) }},
		{o.churn > 0, func() error { return churn(ctx, r, c, o.churn, o.churnRate) }},
		{o.quiet > 0, func() error { return quiet(ctx, r, c, o.quiet) }},
		{o.kill, func() error { return kill(ctx, r, c, took) }},
	} {
		if more.isWanted {
			if err := more.measure(); err != nil {
				return err
			}
		}
	}
	return nil
}
