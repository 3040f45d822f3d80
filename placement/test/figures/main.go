// Command figures measures the programs of placement on an API server of its own: the built
// controller, and agents that run in this process, each with a connection of its own. It prints each
// figure beside its target. The results are in placement/docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// settings are the parameters of a measurement.
type settings struct {
	resources, partitions, agents, rounds, samples, many int
	steps, profiles                                      string
}

func main() {
	var s settings
	flag.IntVar(&s.resources, "resources", 1000, "number of Queues")
	flag.IntVar(&s.partitions, "partitions", 10, "number of partitions of each")
	flag.IntVar(&s.agents, "agents", 200, "number of agents")
	flag.IntVar(&s.rounds, "rounds", 3, "number of times that all work is distributed; results are medians")
	flag.IntVar(&s.samples, "samples", 200, "number of Queues that are created one after the other")
	flag.IntVar(&s.many, "many", 10000, "number of Queues with one partition for the memory of the controller; 0 disables the measurement")
	flag.StringVar(&s.steps, "steps", "", "comma-separated names of steps to measure after the first; empty for all: create, leave, join, kill, lead, roll, passes, delete, memory")
	flag.StringVar(&s.profiles, "profiles", "", "directory for CPU profiles of this process while all work is distributed; empty for none")
	flag.Parse()
	logf.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	b, err := newBench(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Println("| figure | target | result |\n| --- | --- | --- |") //nolint:forbidigo // printing is the purpose of this program
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"", b.distribute},
		{"create", b.create},
		{"leave", b.leave},
		{"join", b.join},
		{"kill", b.kill},
		{"lead", b.lead},
		{"roll", b.roll},
		{"passes", b.passes},
		{"delete", b.deleteAll},
		{"memory", b.memory},
	} {
		if s.steps != "" && step.name != "" && !slices.Contains(strings.Split(s.steps, ","), step.name) {
			continue
		}
		if err := step.do(ctx); err != nil {
			return errors.Join(err, errors.New(b.controllerOutput()))
		}
	}
	return nil
}
