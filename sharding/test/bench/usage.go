package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// profileSeconds is the length of an API server profile, which is less than the creates take.
const profileSeconds = 5

// used prints the resources that the sharder has used so far.
func (b *bench) used(when string) error {
	usage, err := programs.UsageOf(b.sharder.PID())
	if err != nil {
		return err
	}
	b.printResult("sharder "+when+": peak memory, MiB; CPU, s", "%.0f; %.1f", usage.PeakMiB(), usage.CPU.Seconds())
	return nil
}

// cpu is the CPU time of each process: the API server, etcd, the sharder, and this process, which
// runs the shards and the clients.
type cpu [4]time.Duration

// spent returns the CPU times so far.
func (b *bench) spent() (c cpu, err error) {
	pids := [len(c)]int{2: b.sharder.PID(), 3: os.Getpid()}
	for i, s := range []controlplane.Server{controlplane.APIServer, controlplane.Etcd} {
		if pids[i], err = b.plane.PID(s); err != nil {
			return cpu{}, err
		}
	}
	for i, pid := range pids {
		usage, err := programs.UsageOf(pid)
		if err != nil {
			return cpu{}, err
		}
		c[i] = usage.CPU
	}
	return c, nil
}

func (c cpu) since(before cpu) cpu {
	for i := range c {
		c[i] -= before[i]
	}
	return c
}

// per formats the CPU times per object, in milliseconds.
func (c cpu) per(n int) string {
	each := make([]string, len(c))
	for i, d := range c {
		each[i] = strconv.FormatFloat(ms(d)/float64(n), 'f', 2, 64)
	}
	return strings.Join(each, ", ")
}

// profile writes a CPU profile of the API server if requested. The returned channel is closed when
// it is complete.
func (b *bench) profile(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	if b.profileFile == "" {
		done <- nil
		return done
	}
	go func() {
		d, err := discovery.NewDiscoveryClientForConfig(b.plane.Config)
		if err != nil {
			done <- err
			return
		}
		content, err := d.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", strconv.Itoa(profileSeconds)).Do(ctx).Raw()
		if err != nil {
			done <- err
			return
		}
		done <- os.WriteFile(b.profileFile, content, 0o600)
	}()
	return done
}
